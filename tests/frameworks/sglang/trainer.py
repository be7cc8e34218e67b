"""A trainer of one rank that gives a running engine its weights in every way; run by test_engine.py.

Runs in the environment of `make sglang`. Prints one line of JSON: what the engine answered and generated.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Any

from slime_profiler_plugin import timeline
from slime_profiler_plugin.attach.sglang.windows import EngineWindows

GROUP = "slime-pp_0"
#: Forward passes of a generation, more than the window has.
TOKENS = 30


class Engine:
    def __init__(self, url: str) -> None:
        self.url = url
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(self, path: str, body: Any = None, timeout: float = 120) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path,
            data,
            {"Content-Type": "application/json"},
            method="GET" if data is None else "POST",
        )
        try:
            with self._opener.open(request, timeout=timeout) as answer:
                text, status = answer.read().decode(), answer.status
        except urllib.error.HTTPError as error:
            with error:
                text, status = error.read().decode(), error.code
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def generate(self, tokens: int = 8) -> tuple[list[int], Any]:
        sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
        _, told = self.ask("/generate", {"text": "hello world", "sampling_params": sampling})
        return told["output_ids"], told["meta_info"].get("weight_version")


class Health(threading.Thread):
    """Asks for the engine's health as slime does, and keeps what it answers and how long that takes."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(daemon=True)
        self._engine, self._done = engine, threading.Event()
        self.statuses: list[int] = []
        self.longest_s = 0.0

    def run(self) -> None:
        while not self._done.wait(0.1):
            began = time.monotonic()
            self.statuses.append(self._engine.ask("/health_generate", timeout=30)[0])
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    def end(self) -> dict[str, Any]:
        self._done.set()
        self.join(60)
        return {"statuses": self.statuses, "longest_s": self.longest_s}


class Trainer:
    def __init__(self, engine: Engine, models: Path, size: int, port: int, has_sessions: bool) -> None:
        from safetensors.torch import load_file

        self.engine, self.models, self.size, self.port = engine, models, size, port
        self.weights = {name: load_file(models / name / "model.safetensors") for name in ("a", "b")}
        self.has_sessions = has_sessions
        self.group: Any = None

    def connect(self) -> Any:
        from sglang.srt.utils.common import init_custom_process_group

        told: list[Any] = []
        request = {
            "master_address": "127.0.0.1",
            "master_port": self.port,
            "rank_offset": 1,
            "world_size": 1 + self.size,
            "group_name": GROUP,
            "backend": "gloo",
        }
        thread = threading.Thread(
            target=lambda: told.append(self.engine.ask("/init_weights_update_group", request))
        )
        thread.start()
        self.group = init_custom_process_group(
            backend="gloo",
            init_method=f"tcp://127.0.0.1:{self.port}",
            world_size=1 + self.size,
            rank=0,
            group_name=GROUP,
        )
        thread.join()
        return told[0]

    def broadcast(self, model: str, sync: int, version: str) -> list[Any]:
        """In two buckets."""
        import torch.distributed as dist

        weights, told = self.weights[model], []
        names = sorted(weights)
        with timeline.phase("weight_sync", sync=sync, weight_version=version):
            for bucket, part in enumerate((names[::2], names[1::2])):
                request = {
                    "names": part,
                    "dtypes": [str(weights[name].dtype).removeprefix("torch.") for name in part],
                    "shapes": [list(weights[name].shape) for name in part],
                    "group_name": GROUP,
                    "flush_cache": True,
                    "weight_version": version,
                }
                about = {"sync": sync, "weight_version": version, "bucket": bucket, "transport": "nccl"}
                size = sum(weights[name].nbytes for name in part)
                with timeline.phase("bucket_send", bytes=size, tensors=len(part), group=GROUP, **about):
                    answers: list[Any] = []
                    thread = threading.Thread(
                        target=lambda request=request, answers=answers: answers.append(
                            self.engine.ask("/update_weights_from_distributed", request)
                        )
                    )
                    thread.start()
                    handles = [dist.broadcast(weights[n], 0, group=self.group, async_op=True) for n in part]
                    for handle in handles:
                        handle.wait()
                    thread.join()
                told.append(answers[0])
        return told

    def send_tensors(self, model: str, sync: int, version: str, *, flat: bool) -> Any:
        import torch
        from sglang.srt.utils import MultiprocessingSerializer
        from sglang.srt.weight_sync.tensor_bucket import FlattenedTensorBucket

        torch.multiprocessing.set_sharing_strategy("file_system")
        weights = self.weights[model]
        named: Any = sorted(weights.items())
        if flat:
            bucket = FlattenedTensorBucket(named_tensors=named)
            named = {"flattened_tensor": bucket.get_flattened_tensor(), "metadata": bucket.get_metadata()}
        size = sum(tensor.nbytes for tensor in weights.values())
        about = {"sync": sync, "weight_version": version}
        with timeline.phase("weight_sync", **about):
            text = MultiprocessingSerializer.serialize(named, output_str=True)
            request = {
                "serialized_named_tensors": [text] * self.size,
                "load_format": "flattened_bucket" if flat else None,
                "flush_cache": True,
                "weight_version": version,
            }
            with timeline.phase(
                "bucket_send", bytes=size, tensors=len(weights), bucket=0, transport="ipc", **about
            ):
                return self.engine.ask("/update_weights_from_tensor", request)

    def write(self, model: str, sync: int, version: str) -> Any:
        folder = self.models / model
        about = {"sync": sync, "weight_version": version, "transport": "disk"}
        with timeline.phase("weight_sync", **about):
            with timeline.phase("shard_write", **about):
                time.sleep(0.001)  # the file is there already
            request = {"model_path": str(folder), "weight_version": version, "load_format": "auto"}
            return self.engine.ask("/update_weights_from_disk", request)

    def session(self, verb: str) -> None:
        """0.5.23 wants updates within one."""
        if self.has_sessions:
            status, told = self.engine.ask(f"/{verb}_weight_update", {})
            assert status == HTTPStatus.OK, told


def run(options: argparse.Namespace) -> dict[str, Any]:
    engine = Engine(options.url)
    trainer = Trainer(engine, options.models, options.size, options.port, options.has_sessions)
    timeline.start(role="actor", rank=0, world_size=1)
    windows = EngineWindows()
    told: dict[str, Any] = {"source": timeline.source(), "first": engine.generate()}
    told["connect"] = trainer.connect()

    timeline.set_rollout(0)
    windows.on_rollout(0, [options.url])
    trainer.session("begin")
    told["distributed"] = trainer.broadcast("b", 0, "1")
    trainer.session("end")
    told["after distributed"] = engine.generate()

    timeline.set_rollout(1)
    windows.on_rollout(1, [options.url])
    trainer.session("begin")
    told["tensor"] = trainer.send_tensors("a", 1, "2", flat=False)
    trainer.session("end")
    told["after tensor"] = engine.generate()

    timeline.set_rollout(2)
    health = Health(engine)
    health.start()
    windows.on_rollout(2, [options.url])
    while windows.is_asking():
        time.sleep(0.05)
    told["window"] = engine.generate(TOKENS)[1]
    trainer.session("begin")
    told["bucket"] = trainer.send_tensors("b", 2, "3", flat=True)
    trainer.session("end")
    told["after bucket"] = engine.generate()
    told["health"] = health.end()

    timeline.set_rollout(3)
    told["disk"] = trainer.write("a", 3, "4")
    told["after disk"] = engine.generate()
    told["flush"] = engine.ask("/flush_cache", {})[0]
    windows.close()
    timeline.stop()
    return told


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("models", type=Path)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--has-sessions", action="store_true")
    print(json.dumps(run(parser.parse_args())), flush=True)  # noqa: T201 - a program
    os._exit(0)  # a group whose other members live on does not end
