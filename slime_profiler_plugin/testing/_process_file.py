"""One process's record file, line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slime_profiler_plugin import schema
from slime_profiler_plugin.layout import RunPaths


class ProcessFile:
    """Collects the lines of one made-up process and writes them as its record file.

    Times are ns of its clock domain, whose zero is `epoch_ns` in Unix time. `process` is its
    first line; any field of it can be given by name.
    """

    def __init__(
        self,
        run_id: str,
        *,
        pid: int,
        start_ns: int = 0,
        epoch_ns: int = 1_795_000_000 * 10**9,
        **process: Any,
    ) -> None:
        self.epoch_ns = epoch_ns
        start_unix_ns = epoch_ns + start_ns
        fields: dict[str, Any] = {
            "attempt": 0,
            "host": "host0",
            "clock_domain": "boot0",
            "incarnation": f"{pid}-{start_unix_ns}",
            **process,
        }
        self.process = schema.Process(
            run_id=run_id, pid=pid, start_ns=start_ns, start_unix_ns=start_unix_ns, **fields
        )
        self.lines: list[schema.Line] = [self.process]
        self._next_id = 1

    @property
    def source(self) -> str:
        """What ``timeline.source()`` says in this process."""
        return f"{self.process.role}-{self.process.rank}@{self.process.incarnation}"

    def phase(self, name: str, start_ns: int, end_ns: int, *, tid: int | None = None, **fields: Any) -> int:
        """Add a phase; its id is returned."""
        phase_id = self._next_id
        self._next_id += 1
        self.lines.append(
            schema.Phase(
                id=phase_id,
                name=name,
                start_ns=start_ns,
                dur_ns=end_ns - start_ns,
                tid=self.process.pid if tid is None else tid,
                **fields,
            )
        )
        return phase_id

    def open(self, name: str, start_ns: int, seen_ns: int, **fields: Any) -> int:
        """Add a phase that is still open at `seen_ns`; its id is returned."""
        phase_id = self._next_id
        self._next_id += 1
        tid = fields.pop("tid", self.process.pid)
        line = schema.Open(id=phase_id, name=name, start_ns=start_ns, seen_ns=seen_ns, tid=tid, **fields)
        self.lines.append(line)
        return phase_id

    def clock(self, mono_ns: int, error_ns: int = 100) -> None:
        """Add a clock pair."""
        self.lines.append(schema.Clock(mono_ns=mono_ns, unix_ns=self.epoch_ns + mono_ns, error_ns=error_ns))

    def end(self, at_ns: int) -> None:
        """Add the clean end, with a clock pair before it."""
        self.clock(at_ns)
        self.lines.append(schema.End(at_ns=at_ns, reason="stop"))

    def write(self, out: Path | str) -> Path:
        """Write the file into the run folder under `out`; its path is returned."""
        process = self.process
        path = RunPaths(out, process.run_id).record_file(process.host, process.pid, process.start_unix_ns)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(schema.encode_lines(self.lines))
        return path
