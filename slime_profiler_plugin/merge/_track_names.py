"""Processes and threads of a trace, and what to call them: rules 1 and 2."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from slime_profiler_plugin.read import INVENTED_PIDS, TraceEvent, device_of_label, plain_id

#: Process and thread as they stand in the file; ``"123"`` and 123 are one thread.
TrackKey = tuple[Hashable, Hashable]

_CPU_LABEL: Final = "CPU"


def plain_track(track: tuple[Any, Any]) -> TrackKey:
    """The track of an event with that pid and tid."""
    return plain_id(track[0]), plain_id(track[1])


class TrackNames:
    """Collects the metadata events of one file.

    `cpu_pid` is the pid that the recorder says is the process itself.
    """

    def __init__(self, cpu_pid: object) -> None:
        self._cpu_pid = cpu_pid
        self._labels: dict[Hashable, str] = {}
        self._process_names: dict[Hashable, str] = {}
        self._thread_names: dict[TrackKey, str] = {}
        self._thread_order: dict[TrackKey, int] = {}

    def note(self, event: TraceEvent) -> None:
        """Take in a metadata event; a later name replaces an earlier one."""
        process, thread = plain_track((event.pid, event.tid))
        name = _decode(event.name)
        args = _decode(event.args)
        if not isinstance(args, dict):
            return
        if name == "process_labels":
            self._labels[process] = str(args.get("labels", ""))
        elif name == "process_name":
            self._process_names[process] = str(args.get("name", ""))
        elif name == "thread_name":
            self._thread_names[process, thread] = str(args.get("name", ""))
        elif name == "thread_sort_index" and isinstance(args.get("sort_index"), int):
            self._thread_order[process, thread] = args["sort_index"]

    def named_processes(self) -> list[Hashable]:
        """What has a name or a label, in order of presentation."""
        return sorted({**self._labels, **self._process_names}, key=self.process_order)

    def part(self, process: Hashable) -> str:
        """``cpu``, ``gpu 0``, ``Spans``, …: which part of its rank a process of the file is.

        A GPU's number is that of the device, never of a rank.
        """
        label = self._labels.get(process, "")
        device = device_of_label(label)
        if device is not None:
            return f"gpu {device}"
        if process == self._cpu_pid or label == _CPU_LABEL:
            return "cpu" if process == self._cpu_pid or self._cpu_pid is None else f"cpu {process}"
        if process is None:
            return "without a process"
        if process == "":
            return "unnamed"
        name = self._process_names.get(process)
        text = process if isinstance(process, str) else f"pid {process}"
        if name and isinstance(process, str) and process in name:
            return name
        return f"{text} {name}" if name and name != text else text

    def process_order(self, process: Hashable) -> tuple[Any, ...]:
        """Sort key: CPU, GPUs, the rest."""
        part = self.part(process)
        if process in INVENTED_PIDS:
            return (3, INVENTED_PIDS.index(str(process)), "")
        kind = 0 if part == "cpu" else 1 if part.startswith("gpu ") else 2
        return (kind, process if isinstance(process, int) else 0, str(process))

    def thread(self, key: TrackKey) -> str:
        """Name of a thread."""
        name = self._thread_names.get(key)
        if name:
            return name
        thread = key[1]
        if thread is None:
            return "without a thread"
        return thread or "unnamed" if isinstance(thread, str) else f"thread {thread}"

    def thread_order(self, key: TrackKey) -> tuple[Any, ...]:
        """Sort key: as the file says, else by number, else by name."""
        thread = key[1]
        number = self._thread_order.get(key, thread if isinstance(thread, int) else 2**63)
        return (number, str(thread))


def _decode(raw: Any) -> Any:
    """``None`` for what cannot be decoded: such a name is none."""
    try:
        return None if raw is UNSET else msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
