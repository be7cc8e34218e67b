"""Stands in for a rollout engine: speaks as much of SGLang's HTTP as slime asks for, and holds real weights.

``stand_in_engine.py MODEL INDEX GPUS OUT [--offload]``: prints its port. It is no SGLang: it generates words
that depend on the prompt and the seed alone. What it applied, with a digest of every tensor after each
version, goes to ``OUT``. Its own `engine_receive`, `engine_load` and `engine_pull` are recorded by the public
API when the timeline is on, with the fields that the hooks in SGLang give; for those see
tests/frameworks/sglang.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from received_weights import ReceivedWeights, digests

from slime_profiler_plugin import timeline

WORDS = 128


class Engine:
    def __init__(self, model: Path, gpus: int, out: Path, *, offload: bool) -> None:
        self.model, self._gpus, self._out, self._offload = model, gpus, out, offload
        self.received = ReceivedWeights(model)
        self._one_at_a_time = threading.RLock()
        self._buckets: dict[tuple[str, str], int] = {}
        self.workers: list[dict[str, Any]] = []

    def tell(self, **what: Any) -> None:
        with self._out.open("a") as out:
            out.write(json.dumps(what) + "\n")

    def ask(self, name: str, body: dict[str, Any]) -> Any:
        """What SGLang answers to `name`, once it is done."""
        if name == "generate":
            return generate(body)
        if name == "workers":
            if body:
                self.workers.append({"id": str(len(self.workers)), "url": body["url"]})
            return {"workers": self.workers}
        if name in ("server_info", "get_server_info"):
            return {"tp_size": self._gpus, "pp_size": 1, "ep_size": 1, **self._settings()}
        if name == "get_weight_version":
            return {"weight_version": self.received.version}
        with self._one_at_a_time:
            size = getattr(self, f"_{name}", lambda _body: None)(body)
        if not name.startswith(("abort", "get_load", "v1", "health")):
            told = {"request": name, "version": body.get("weight_version") or body.get("target_version")}
            self.tell(**told, tensors=size and size[0], bytes=size and size[1], group=body.get("group_name"))
        return {"success": True, "message": "", "num_running_reqs": 0, "num_waiting_reqs": 0}

    def _settings(self) -> dict[str, Any]:
        """What slime compares with its own idea of an engine."""
        return {"model_path": str(self.model), "enable_memory_saver": self._offload}

    def _init_weights_update_group(self, body: dict[str, Any]) -> None:
        self.received.join(
            body["master_address"],
            body["master_port"],
            body["rank_offset"],
            body["world_size"],
            body["group_name"],
        )

    def _destroy_weights_update_group(self, body: dict[str, Any]) -> None:
        self.received.leave(body["group_name"])

    def _update_weights_from_distributed(self, body: dict[str, Any]) -> tuple[int, int]:
        span = self._bucket(body, "nccl", body["group_name"])
        size = self.received.receive(body["names"], body["dtypes"], body["shapes"], body["group_name"])
        span.end(tensors=size[0], bytes=size[1])
        return self._has_version(body, size)

    def _update_weights_from_tensor(self, body: dict[str, Any]) -> tuple[int, int]:
        span = self._bucket(body, "ipc", None)
        size = self.received.unpack(body["serialized_named_tensors"])
        span.end(tensors=size[0], bytes=size[1])
        return self._has_version(body, size)

    def _update_weights_from_disk(self, body: dict[str, Any]) -> tuple[int, int]:
        with timeline.phase("engine_load", transport="disk", weight_version=body["weight_version"]):
            size = self.received.load(Path(body["model_path"]))
        return self._has_version(body, size)

    def _pull_weights(self, body: dict[str, Any]) -> None:
        version = body["target_version"]
        with timeline.phase("engine_pull", transport="disk_delta", weight_version=str(version)):
            self.received.pull(Path(body["local_checkpoint_dir"]), Path(body["source_dir"]), version)

    def _bucket(self, body: dict[str, Any], transport: str, group: str | None) -> Any:
        key = (body["weight_version"], group or "")
        number = self._buckets[key] = self._buckets.get(key, -1) + 1
        more = {} if group is None else {"group": group}
        return timeline.begin(
            "engine_receive",
            transport=transport,
            weight_version=body["weight_version"],
            bucket=number,
            **more,
        )

    def _has_version(self, body: dict[str, Any], size: tuple[int, int]) -> tuple[int, int]:
        self.received.version = body["weight_version"]
        return size

    def _continue_generation(self, _body: dict[str, Any]) -> None:
        """The weights are all there."""
        self.tell(weights=digests(self.received.weights), version=self.received.version)


def generate(body: dict[str, Any]) -> dict[str, Any]:
    """Words that depend on the prompt and the seed alone, each with a probability that does."""
    sampling = body["sampling_params"]
    told = sum(body["input_ids"]) + 13 * (sampling.get("sampling_seed") or 0)
    count = sampling["max_new_tokens"] - told % 3
    words = [(told * 5 + 11 * place) % (WORDS - 2) + 2 for place in range(count)]
    return {
        "text": " ".join(f"w{word}" for word in words),
        "output_ids": words,
        "meta_info": {
            "finish_reason": {"type": "stop"},
            "output_token_logprobs": [[-1.0 - word / WORDS, word, None] for word in words],
            "prompt_tokens": len(body["input_ids"]),
            "completion_tokens": len(words),
            "cached_tokens": 0,
            "weight_version": "default",
        },
    }


class Handler(BaseHTTPRequestHandler):
    engine: Engine
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self._answer(json.loads(self.rfile.read(length) or "{}"))

    def _answer(self, body: dict[str, Any]) -> None:
        name = self.path.strip("/").split("?")[0].replace("/", "_")
        try:
            status, told = 200, self.engine.ask(name, body)
        except Exception as error:  # noqa: BLE001 - becomes the answer, and slime's failure
            status, told = 500, {"success": False, "message": repr(error)}
            self.engine.tell(failed=name, why=repr(error))
        text = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_args: Any) -> None: ...


def main() -> None:
    model, index, gpus, out = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    if os.environ.get("SLIME_PROFILER"):
        timeline.start(role="engine", rank=0, world_size=1, engine={"index": index})
    Handler.engine = Engine(model, gpus, out, offload="--offload" in sys.argv)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)  # noqa: T201 - a program
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # until the test closes it
    timeline.stop()
    os._exit(0)  # groups whose other members are gone do not end


if __name__ == "__main__":
    main()
