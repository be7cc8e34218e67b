"""Hands buckets from one plain process to another as the demo does over ipc. Prints what both saw as JSON."""

from __future__ import annotations

import json
import os
from multiprocessing import connection, get_context
from typing import Any

import torch
import torch.multiprocessing

from slime_profiler_plugin.demo._model import init_parameters
from slime_profiler_plugin.demo._weights import (
    checksum_tensors,
    convert_parts,
    describe_bucket,
    load_tensors,
    split_buckets,
)
from slime_profiler_plugin.demo.sync import open_handle
from slime_profiler_plugin.demo.sync._ipc import flatten_shared, make_handle

FIELDS: dict[str, Any] = {"sync": 0, "source": None, "weight_version": "1", "transport": "ipc"}


def receive(pipe: connection.Connection) -> None:
    parameters = init_parameters(1, "cpu")
    while (message := pipe.recv()) is not None:
        tensors = open_handle(message[1], message[0])
        load_tensors(parameters, dict(zip(message[0].names, tensors, strict=True)))
        tensors[0].fill_(-7.0)  # the sender sees it: this is its memory
        del tensors
        pipe.send("loaded")
    pipe.send(checksum_tensors(parameters))


def shared_files() -> list[str]:
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"torch_{os.getpid()}_")]


def main() -> None:
    torch.multiprocessing.set_sharing_strategy("file_system")
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    receiver = context.Process(target=receive, args=(theirs,))
    receiver.start()
    parameters = init_parameters(0, "cpu")
    changed, during = [], []
    for number, parts in enumerate(split_buckets(parameters, 262_144)):
        converted = convert_parts(parameters, parts)
        shared = flatten_shared([tensor for _, tensor in converted])
        ours.send((describe_bucket(number, converted, FIELDS), make_handle(shared)))
        assert ours.recv() == "loaded"
        changed.append(shared[0].item())
        during.append(len(shared_files()))
        del shared
    ours.send(None)
    received = ours.recv()
    receiver.join()
    told = {
        "sent": checksum_tensors(parameters),
        "received": received,
        "changed": changed,
        "during": during,
        "after": shared_files(),
    }
    print(json.dumps(told))  # noqa: T201 - what this program is for


if __name__ == "__main__":
    main()
