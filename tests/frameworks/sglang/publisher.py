"""A trainer of one rank that publishes weights in a folder, from which a running engine pulls them.

Run by test_pull.py, in the environment of `make sglang`. First a whole checkpoint, then a delta of it. Prints
one line of JSON: what the engine answered and generated.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

from trainer import Engine

from slime_profiler_plugin import timeline

INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"


def publish_whole(model: Path, version: Path) -> dict[str, int]:
    """All of `model`; what of it a phase says."""
    shutil.copytree(model, version)
    from safetensors.torch import load_file

    weights = load_file(model / WEIGHTS)
    return {"bytes": sum(tensor.nbytes for tensor in weights.values()), "tensors": len(weights)}


def publish_delta(before: Path, after: Path, version: Path, number: int) -> dict[str, int]:
    """What turns the weights of `before` into those of `after`, as slime's pull wants it: compressed xor."""
    import torch
    import zstandard
    from safetensors.torch import load_file, save_file

    old, new = (load_file(model / WEIGHTS) for model in (before, after))
    packed, sums = {}, {}
    for name, tensor in new.items():
        mine, theirs = (t.contiguous().view(-1).view(torch.uint8) for t in (tensor, old[name]))
        delta = zstandard.ZstdCompressor().compress((mine ^ theirs).numpy().tobytes())
        packed[name] = torch.frombuffer(bytearray(delta), dtype=torch.uint8)
        sums[name] = f"{zlib.adler32(mine.numpy().tobytes()):08x}"
    version.mkdir()
    save_file(packed, version / WEIGHTS, metadata=sums)
    about = {
        "version": f"{number:06d}",
        "base_version": f"{number - 1:06d}",
        "compression_format": "zstd",
        "delta_encoding": "xor",
        "checksum_format": "adler32",
    }
    (version / INDEX).write_text(json.dumps({"metadata": about}))
    return {"bytes": sum(t.nbytes for t in packed.values()), "tensors": len(packed)}


def run(options: argparse.Namespace) -> dict[str, Any]:
    engine, models = Engine(options.url), options.models
    published, local = models / "published", models / "local"
    published.mkdir()
    timeline.start(role="actor", rank=0, world_size=1)
    told: dict[str, Any] = {"first": engine.generate()[0]}
    versions = {number: published / f"weight_v{number:06d}" for number in (1, 2)}
    for number, version in versions.items():
        timeline.set_rollout(number)
        about = {"sync": number - 1, "weight_version": str(number), "transport": "disk_delta"}
        with timeline.phase("weight_sync", **about):
            publish = timeline.begin("delta_publish", source=timeline.source(), **about)
            with publish.inside():
                if number == 1:
                    size = publish_whole(models / "b", version)
                else:
                    size = publish_delta(models / "b", models / "a", version, number)
            publish.end(**size)
            request = {
                "local_checkpoint_dir": str(local),
                "source_dir": str(published),
                "target_version": number,
            }
            told[f"pull {number}"] = engine.ask("/pull_weights", request)
            loaded = {"model_path": str(local), "weight_version": str(number), "load_format": "auto"}
            told[f"load {number}"] = engine.ask("/update_weights_from_disk", loaded)[0]
        told[f"after {number}"] = engine.generate()
    timeline.set_rollout(3)
    missing = {"local_checkpoint_dir": str(local), "source_dir": str(published), "target_version": 9}
    told["missing"] = engine.ask("/pull_weights", missing)[0]
    timeline.stop()
    return told


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("models", type=Path)
    print(json.dumps(run(parser.parse_args())), flush=True)  # noqa: T201 - a program
    os._exit(0)  # as trainer.py ends
