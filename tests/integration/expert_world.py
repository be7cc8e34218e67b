"""Worlds of several sizes that exchange tokens among groups of unequal size: ``expert_world.py OUT PLUGIN``.

Each world runs two rollouts, the second with another number of ranks: the processes that stay make a new
world with those that come. ``PLUGIN`` is ``on`` or ``off``, where nothing of ours is imported.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import collectives

collectives.install()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

#: By name: the groups of the first rollout's ranks, and of the second's.
WORLDS: dict[str, tuple[list[list[int]], list[list[int]]]] = {
    "2 then 3": ([[0, 1]], [[0, 2], [1]]),
    "3 then 2": ([[0, 2], [1]], [[0], [1]]),
    "5 then 6": ([[0, 1, 2], [3, 4]], [[0], [1, 2], [3, 4, 5]]),
    "6 then 5": ([[0, 2, 4, 5], [1, 3]], [[4, 0], [1, 2, 3]]),
}


class Exchange:
    """Somebody's expert parallelism, which knows nothing of the plugin."""

    def __init__(self, group: Any) -> None:
        self.group = group

    def send(self, tokens: torch.Tensor) -> torch.Tensor:
        found = [torch.empty_like(tokens) for _ in range(self.group.size())]
        dist.all_gather(found, tokens, group=self.group)
        return torch.cat(found)

    def fetch(self, tokens: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(tokens, group=self.group)
        return tokens

    def collect(self, weights: list[torch.Tensor]) -> list[torch.Tensor]:
        return [self.send(weight) for weight in weights]

    def convert(self, weights: list[torch.Tensor]) -> Iterator[torch.Tensor]:
        for weight in weights:
            yield weight * 2


def take_part(out: Path, world: str, rank: int, plugin: bool) -> None:
    """One process, from its first rollout to its last."""
    results = []
    recorded: Any = None
    if plugin:
        from slime_profiler_plugin import timeline
        from slime_profiler_plugin.attach import expert_parallel

        recorded = timeline
        recorded.start({"out": str(out)}, role="actor", rank=rank, run_id="worlds")
        expert_parallel.attach(
            Exchange,
            group=lambda exchange, *_: exchange.group,
            dispatch="send",
            combine="fetch",
            gather="collect",
            convert="convert",
        )
    for rollout, groups in enumerate(WORLDS[world]):
        size = sum(map(len, groups))
        if rank >= size:
            continue
        store = f"file://{out}/{world}-{rollout}"
        dist.init_process_group("gloo", store, dt.timedelta(seconds=60), world_size=size, rank=rank)
        made = [dist.new_group(ranks) for ranks in groups]
        (exchange,) = (Exchange(group) for group, ranks in zip(made, groups, strict=True) if rank in ranks)
        with recorded.rollout(rollout) if recorded else contextlib.nullcontext():
            sent = exchange.send(torch.tensor([float(rank)] * 4))
            fetched = exchange.fetch(sent.sum().reshape(1))
            collected = exchange.collect([torch.tensor([rank]), torch.tensor([rank, rollout])])
            converted = list(exchange.convert(collected))
        results.append([tensor.tolist() for tensor in (sent, fetched, *converted)])
        dist.barrier()
        dist.destroy_process_group()
    if recorded:
        recorded.stop()
    seen = {"results": results, "collectives": collectives.SEEN}
    (out / f"{world}-rank{rank}.json").write_text(json.dumps(seen))


def run(out: Path, world: str, plugin: bool) -> bool:
    """Whether all processes of a world ended well."""
    children = []
    for rank in range(max(sum(map(len, groups)) for groups in WORLDS[world])):
        child = os.fork()
        if not child:
            try:
                take_part(out, world, rank, plugin)
            except BaseException:  # noqa: BLE001 - the end of this process
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    return not any(codes)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name in WORLDS:
        (folder / name).mkdir()
        if not run(folder / name, name, sys.argv[2] == "on"):
            sys.exit(f"world {name} failed")
