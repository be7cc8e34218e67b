"""disk: the trainers write whole weights as files, and the driver has the engines load them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.demo._model import Parameters
from slime_profiler_plugin.demo._weights import convert_parts, count_tensor_bytes, engine_tensors

from ._files import WeightsError, file_name, list_files, pack_file, read_file, version_folder, write_file
from ._protocol import EngineCalls, Fields, Sent, SyncReport, ask_all, paused_engines
from ._rank import SyncRank

if TYPE_CHECKING:
    from torch import Tensor


class DiskSender:
    """Ranks take turns: of n, rank r writes the files r, r + n, r + 2n, …"""

    def __init__(self, rank: SyncRank) -> None:
        self._rank = rank

    @property
    def is_source(self) -> bool:
        """All ranks write one version."""
        return self._rank.is_source

    def send(self, engines: Sequence[EngineCalls], fields: Fields) -> Sent:  # noqa: ARG002 - the driver asks them
        """Write this rank's files, and wait for the others."""
        rank = self._rank
        folder = version_folder(rank.settings, fields["weight_version"])
        buckets = rank.buckets(fields)
        sizes, file_sizes = [], []
        for number in range(rank.number, len(buckets), rank.settings.trainers):
            with timeline.phase("weight_convert", bucket=number, **fields):
                tensors = dict(convert_parts(rank.parameters, buckets[number]))
                sizes.append(count_tensor_bytes(tensors.values()))
                data = pack_file(tensors, {"weight_version": fields["weight_version"]})
            about = {**fields, "bucket": number, "bytes": len(data), "tensors": len(tensors)}
            with timeline.phase("shard_write", **about):
                write_file(folder / file_name(number, len(buckets)), data)
            file_sizes.append(len(data))
        rank.barrier(fields)
        return Sent(buckets=len(sizes), bytes=sum(sizes), file_bytes=sum(file_sizes))


def reload_engines(engines: Sequence[EngineCalls], report: SyncReport) -> None:
    """In the driver: have all engines load what the trainers wrote in the sync of `report`.

    Raises what an engine raises.
    """
    fields = report.fields()
    with (
        timeline.phase("weight_sync", **fields),
        paused_engines(engines, fields),
        timeline.phase("engine_wait", **fields),
    ):
        ask_all(engines, "load_shards", fields)


def read_shards(folder: Path, parameters: Parameters) -> dict[str, Tensor]:
    """In an engine: all of its tensors, from the files of a version.

    Raises `WeightsError` when there is anything else in them, or less.
    """
    wanted = engine_tensors(parameters)
    found: dict[str, Tensor] = {}
    for path in list_files(folder):
        tensors, _ = read_file(path)
        for name, tensor in tensors.items():
            if name not in wanted:
                raise WeightsError(f"{path}: {name} is no tensor of the model")
            if (tensor.shape, tensor.dtype) != (wanted[name].shape, wanted[name].dtype):
                raise WeightsError(
                    f"{path}: {name} is {tensor.dtype} {list(tensor.shape)}, "
                    f"in the model {wanted[name].dtype} {list(wanted[name].shape)}"
                )
        found |= tensors
    check_whole(folder, found, wanted)
    return found


def check_whole(folder: Path, found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """Raise `WeightsError` when a tensor of the model stands in no file of `folder`."""
    missing = [name for name in wanted if name not in found]
    if missing:
        raise WeightsError(f"{folder}: no file has {missing[0]}, and {len(missing)} tensors are missing")
