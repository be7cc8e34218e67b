"""A TensorBoard event file that is ours alone: brought up to date by adding at its end, and only what is new.

What stands in it is what a reader of TensorBoard makes of it: a ``START`` of a session takes back every value
from its step on.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias

from ._engine import TablesUnavailableError

#: Values by tag.
Values: TypeAlias = "dict[str, float]"
_VERSION: Final = "brain.Event:2"
#: TensorFlow's number for it. Beside the older ``simple_value``, the data server shows no description.
_DT_FLOAT: Final = 1
_NAME_PART: Final = "tfevents"
_HEAD: Final = struct.Struct("<QI")
_FOOT: Final = struct.Struct("<I")
_FLOAT: Final = struct.Struct("<f")


class Step(NamedTuple):
    """What is to stand at one step: `unix_s` is its time, and all of `values` are finite."""

    unix_s: float
    values: Values


class EventFileError(RuntimeError):
    """The event file cannot be written; the message says why."""


def update_event_file(path: Path, steps: Mapping[int, Step], told: Mapping[str, str]) -> int:
    """Make the event file at `path` say `steps`, and `told` of each tag; the number of values added.

    Once as often as twice: what stands there already is not written again. When an earlier step has changed,
    it and all after it are written anew. Raises `EventFileError`, and `TablesUnavailableError` without the
    package tensorboard.
    """
    events = _Events()
    if not steps and not path.exists():
        return 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        others = [p.name for p in path.parent.iterdir() if _NAME_PART in p.name and p.name != path.name]
        if others:
            raise EventFileError(f"{path.parent} has an event file of another program: {others[0]}")
        with path.open("a+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            stands, seen, whole = events.read(stream)
            wanted = {
                step: {tag: _as_stored(v) for tag, v in at.values.items()} for step, at in steps.items()
            }
            first = min((s for s in {*stands, *wanted} if stands.get(s) != wanted.get(s)), default=None)
            if first is None and whole:
                return 0
            new = b"" if whole else events.begin()
            added = sorted(step for step in steps if first is not None and step >= first)
            if first is not None and any(step >= first for step in stands):
                new += events.start_again(steps[added[0]].unix_s if added else 0.0, first)
            for step in added:
                new += events.step(
                    step, steps[step], {t: told[t] for t in steps[step].values if t not in seen}
                )
                seen.update(steps[step].values)
            stream.truncate(whole)
            stream.write(new)
    except OSError as error:
        raise EventFileError(f"{path} cannot be written: {error.strerror or error}") from error
    return sum(len(steps[step].values) for step in added)


def _as_stored(value: float) -> float:
    (stored,) = _FLOAT.unpack(_FLOAT.pack(value))
    return float(stored)


class _Events:
    """TensorBoard's records and messages; its modules do without TensorFlow."""

    def __init__(self) -> None:
        try:
            self._event: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
            stub = importlib.import_module("tensorboard.compat.tensorflow_stub.pywrap_tensorflow")
        except ImportError as error:
            raise TablesUnavailableError(
                "scalars need the package tensorboard, which is not installed: "
                "pip install 'slime-profiler-plugin[tensorboard]'"
            ) from error
        self._crc: Any = stub.masked_crc32c

    def read(self, stream: BinaryIO) -> tuple[dict[int, Values], set[str], int]:
        """What stands at each step, the tags that are explained, and the length without a torn end."""
        stands: dict[int, Values] = {}
        seen: set[str] = set()
        whole = 0
        for data, whole in self._records(stream):  # noqa: B007 - the last one is wanted
            event = self._event.Event.FromString(data)
            if event.HasField("session_log"):
                stands = {step: values for step, values in stands.items() if step < event.step}
            for value in event.summary.value:
                stands.setdefault(event.step, {})[value.tag] = value.tensor.float_val[0]
                seen.add(value.tag)
        return stands, seen, whole

    def _records(self, stream: BinaryIO) -> Iterator[tuple[bytes, int]]:
        stream.seek(0)
        size = os.fstat(stream.fileno()).st_size
        while len(head := stream.read(_HEAD.size)) == _HEAD.size:
            length, check = _HEAD.unpack(head)
            if check != self._crc(head[:8]) or length > size:
                return
            data = stream.read(length)
            foot = stream.read(_FOOT.size)
            if len(foot) < _FOOT.size or _FOOT.unpack(foot)[0] != self._crc(data):
                return
            yield data, stream.tell()

    def encode(self, **fields: Any) -> bytes:
        """The record of one event."""
        data: bytes = self._event.Event(**fields).SerializeToString()
        head = struct.pack("<Q", len(data))
        return head + _FOOT.pack(self._crc(head)) + data + _FOOT.pack(self._crc(data))

    def begin(self) -> bytes:
        """The head of a file. Only a ``START`` after the first takes something back."""
        return self.encode(file_version=_VERSION) + self.start_again(0.0, 0)

    def start_again(self, unix_s: float, step: int) -> bytes:
        """What takes back all from `step` on."""
        start = self._event.SessionLog(status=self._event.SessionLog.START)
        return self.encode(wall_time=unix_s, step=step, session_log=start)

    def step(self, number: int, at: Step, told: Mapping[str, str]) -> bytes:
        """All values of a step, and what `told` says of some."""
        event = self._event.Event()
        values = [
            event.summary.Value(
                tag=tag,
                tensor={"dtype": _DT_FLOAT, "tensor_shape": {}, "float_val": [value]},
                metadata={"summary_description": told[tag], "plugin_data": {"plugin_name": "scalars"}}
                if tag in told
                else None,
            )
            for tag, value in at.values.items()
        ]
        return self.encode(wall_time=at.unix_s, step=number, summary={"value": values})
