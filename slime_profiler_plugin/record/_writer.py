"""The thread that writes: the only one that touches the file.

Everybody else asks it, through a queue that may be used inside signal handlers, and waits for
a bounded time. So there is no lock that a signal handler or a forked child could find taken.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

import msgspec

from slime_profiler_plugin import schema
from slime_profiler_plugin.clock import read_pair
from slime_profiler_plugin.config import Records
from slime_profiler_plugin.identity import ProcessIdentity

from ._budget import Budget
from ._convert import UNFIT, Converter
from ._drops import Drops
from ._files import SegmentedFile, TakenError
from ._guard import FAILURE, Guard, warn
from ._lines import AnyLine, PlainPhase, drop_line, open_line
from ._queue import TYPICAL_LINE_BYTES, Item, Record, RecordQueue, line_kind_and_name
from ._threads import new_thread, start_thread
from ._values import as_text

#: Lines encoded in one step, all of it under the interpreter lock: about 0.2 ms.
_BATCH: Final = 512
_OPEN_AFTER_NS: Final = 1_000_000_000
#: Of the record file, when the first is taken. One will do, unless the file system is at fault.
_MORE_NAMES: Final = 20
_AFTER_END: Final = "after the end"


class _Request(NamedTuple):
    done: threading.Event | None
    #: Set: the last flush.
    end_reason: str | None
    #: Done before the flush.
    errand: Callable[[], object] | None = None


class Writer:
    """Encodes and writes what is queued: once per period, or when a full write has gathered."""

    def __init__(
        self,
        *,
        queue_capacity: int,
        settings: Records,
        drops: Drops,
        guard: Guard,
        process: schema.Process,
        path_of: Callable[[int | None], Path],
        next_incarnation: Callable[[], ProcessIdentity],
        open_phases: Callable[[], Iterable[Record]],
        failed: Callable[[], None],
    ) -> None:
        """`next_incarnation`: makes `path_of` name another file, and returns who this process is then.

        `open_phases`: what runs now. `failed` is called in the thread when it gives up.
        """
        self._requests: SimpleQueue[_Request] = SimpleQueue()
        self.queue = RecordQueue(queue_capacity, settings.flush_bytes, drops, self._wake)
        self._settings = settings
        self._batch = max(1, min(_BATCH, settings.flush_bytes // TYPICAL_LINE_BYTES))
        self._drops = drops
        self._guard = guard
        self._process = msgspec.structs.replace(process)
        self._next_incarnation = next_incarnation
        self._open_phases = open_phases
        self._failed = failed
        self._file = SegmentedFile(path_of)
        self._converter = Converter(Budget(settings.budget_bytes), drops)
        self._counts: Counter[str] = Counter()
        self._warned = False
        # What the current segment has to say before other lines, or has said.
        self._header_written = False
        self._threads: dict[int, schema.Thread] = {}
        self._again: list[schema.Line] = []
        self._opens_written: set[int] = set()
        # Encoded and not yet written.
        self._lines: list[AnyLine] = []
        self._chunks: list[bytes] = []
        self._bytes = 0
        self._thread = new_thread(self._run, "slime_profiler_writer")
        #: CPU time of the thread at its last flush, in ns.
        self.cpu_ns = 0

    def start(self) -> None:
        """Start the thread. Raises `RuntimeError` when there can be no more threads."""
        start_thread(self._thread)

    def flush(self, timeout_s: float) -> bool:
        """Have all that is queued written; whether that was done in time.

        In the thread itself, where a logging handler or a ``__del__`` of the program's may call,
        it returns at once.
        """
        return self._ask(None, timeout_s)

    def run(self, part: str, errand: Callable[[], object]) -> None:
        """Have the thread do `errand`, which may wait for a file system; returns at once.

        Its failure is that of `part`.
        """

        def guarded() -> None:
            with self._guard(part):
                errand()

        self._requests.put(_Request(None, None, guarded))

    def close(self, reason: str, timeout_s: float) -> bool:
        """The same for the last time, with an `End` line; then the file is closed.

        What is queued later, or was not written in time, is dropped and counted.
        """
        done = self._ask(reason, timeout_s)
        if not self._in_thread():  # else it is the thread's next work
            self.queue.close(_AFTER_END)
        return done

    def abandon(self) -> None:
        """In a forked child: the file is the parent's, the thread is not here."""
        self._file.close()

    def _in_thread(self) -> bool:
        return self._thread.ident == threading.get_ident()

    def _wake(self) -> None:
        self._requests.put(_Request(None, None))

    def _ask(self, end_reason: str | None, timeout_s: float) -> bool:
        # An event of its own for each request: nobody else can hold its lock.
        done = threading.Event()
        self._requests.put(_Request(done, end_reason))
        if self._in_thread():
            return False
        deadline = time.monotonic() + timeout_s
        while self._thread.is_alive() and time.monotonic() < deadline:
            if done.wait(min(0.2, max(0.0, deadline - time.monotonic()))):
                return True
        return done.is_set()

    def _run(self) -> None:
        with self._guard("writer"):
            while not self._serve():
                pass
        if self._guard.disabled("writer"):
            self.queue.close("writer failed")
            self._failed()
        else:
            self.queue.close(_AFTER_END)

    def _serve(self) -> bool:
        """Wait for a request or the period's end, then flush; whether it was the last."""
        requests = []
        try:
            requests.append(self._requests.get(timeout=self._settings.period_s))
            while True:
                requests.append(self._requests.get_nowait())
        except Empty:
            pass
        for request in requests:
            if request.errand is not None:
                request.errand()
        end_reason = next((r.end_reason for r in requests if r.end_reason is not None), None)
        self._flush(end_reason)
        for request in requests:
            if request.done is not None:
                request.done.set()
        return end_reason is not None

    def _flush(self, end_reason: str | None) -> None:
        opens = self._new_opens(everything=end_reason is not None)
        waiting = len(self.queue.items)
        if self._file.is_open or waiting or opens:
            self._ready()
            self._add(opens)
            while waiting > 0:
                items = self.queue.take(min(waiting, self._batch))
                waiting = waiting - len(items) if items else 0  # closed meanwhile: it is late
                self._add(self._convert(items))
                if self._bytes >= self._settings.flush_bytes:
                    self._write()
            self._converter.count_muted()
            self._add([drop_line(drop) for drop in self._drops.take()])
            self._add([schema.Clock(**read_pair()._asdict())])
            self._write()
        if end_reason is not None and self._file.is_open:
            counts = {**self._counts, "dropped": self._drops.total}
            self._add([schema.End(at_ns=time.monotonic_ns(), reason=end_reason, counts=counts)])
            self._write()
            self._sync()
            self._file.close()
        elif self._settings.fsync:
            self._sync()
        self.cpu_ns = time.thread_time_ns()

    def _new_opens(self, *, everything: bool) -> list[schema.Line]:
        """Looked up before the queue is drained: a phase that ends meanwhile follows its `Open`."""
        now = time.monotonic_ns()
        running = {record.id: record for record in self._open_phases() if record.id is not None}
        self._opens_written &= running.keys()
        new = {
            phase_id: record
            for phase_id, record in running.items()
            if phase_id not in self._opens_written and (everything or now - record.start_ns >= _OPEN_AFTER_NS)
        }
        self._opens_written |= new.keys()
        return [self._open_line(record, now) for record in new.values()]

    def _open_line(self, record: Record, now: int) -> schema.Line:
        try:
            return open_line(record, now)
        except FAILURE:
            self._drops.add("attrs", UNFIT, 1, {as_text(record.name): 1})
            return open_line(record._replace(fields=None), now)

    def _convert(self, items: list[Item]) -> list[AnyLine]:
        for item in items:
            if isinstance(item, (schema.Thread, schema.Identity)):
                self._note(item)
        return self._converter.to_lines(items)

    def _note(self, line: schema.Thread | schema.Identity) -> None:
        """Remember what later segments have to repeat."""
        if isinstance(line, schema.Thread):
            self._threads[line.tid] = line
        else:
            for field in ("role", "rank", "ranks", "world_size", "engine"):
                setattr(self._process, field, getattr(line, field))

    def _ready(self) -> None:
        """Open the segment if need be, and begin it if it has no first line yet."""
        if not self._file.is_open:
            try:
                self._open()
            except OSError as error:
                self._trouble(error)
                return
            self._header_written = False
        if not self._header_written:
            self._header_written = True
            self._converter.begin_segment()
            self._again.clear()
            self._process.segment = self._file.segment
            threads = [t for t in self._threads.values() if Path(f"/proc/self/task/{t.tid}").exists()]
            self._threads = {t.tid: t for t in threads}
            self._add([msgspec.structs.replace(self._process), *threads])
        again, self._again = self._again, []
        self._add(again)

    def _open(self, more_names: int = _MORE_NAMES) -> None:
        """Open the segment, the first one under another name while its name is another process's."""
        try:
            self._file.open()
        except TakenError:
            if self._file.segment or not more_names:
                raise
            who = self._next_incarnation()
            self._process.incarnation, self._process.start_unix_ns = who.incarnation, who.start_unix_ns
            self._open(more_names - 1)

    def _add(self, lines: Sequence[AnyLine]) -> None:
        """Encode, for the next `_write`.

        A line that cannot be encoded loses its attrs, else it is dropped; both are counted.
        """
        if not lines:
            return
        try:
            chunk = schema.encode_lines(lines)  # type: ignore[arg-type]  # PlainPhase is a phase line
        except FAILURE:
            if len(lines) > 1:
                for line in lines:
                    self._add([line])
            else:
                (line,) = lines
                what, name = line_kind_and_name(line)
                bare = getattr(line, "attrs", None)
                self._drops.add("attrs" if bare else what, UNFIT, 1, {name: 1} if name else None)
                if bare:
                    self._add([msgspec.structs.replace(line, attrs={})])
            return
        self._lines += lines
        self._chunks.append(chunk)
        self._bytes += len(chunk)

    def _write(self) -> None:
        """One write of all that is encoded; what could not be written is counted."""
        lines, self._lines = self._lines, []
        data, self._chunks, self._bytes = b"".join(self._chunks), [], 0
        if not lines:
            return
        if not self._file.is_open:
            self._lose(lines, "no record file")
            return
        kept, error = self._file.append(data)
        types: Counter[type[msgspec.Struct]] = Counter(map(type, lines[:kept]))
        for line_type, count in types.items():
            self._counts[str(line_type.__struct_config__.tag)] += count
        if error is not None:
            self._trouble(error)
            self._lose(lines[kept:], f"write failed: {error.strerror}")
        if self._file.size >= self._settings.segment_bytes:
            self._rotate()
        self._converter.budget.spent(self._file.total_bytes)

    def _rotate(self) -> None:
        try:
            self._file.rotate()
        except OSError as error:
            self._trouble(error)
        self._ready()

    def _lose(self, lines: list[AnyLine], reason: str) -> None:
        """`lines` are not in the file: say them again where others depend on them, else count."""
        lost: Counter[tuple[str, str]] = Counter()
        for line in lines:
            if isinstance(line, schema.Process):
                self._header_written = False
            elif isinstance(line, (schema.Thread, schema.Identity)):
                self._again.append(line)
            elif isinstance(line, schema.PhaseDef):
                self._converter.undefine(line.name)
            elif isinstance(line, schema.Open):
                self._opens_written.discard(line.id)
            elif isinstance(line, schema.Drop):
                self._drops.put_back([line])
            elif isinstance(line, (PlainPhase, schema.Phase, schema.Mark, schema.Device)):
                lost[line_kind_and_name(line)] += 1
        for (what, name), count in lost.items():
            self._drops.add(what, reason, count, {name: count} if name else None)

    def _sync(self) -> None:
        try:
            self._file.sync()
        except OSError as error:
            self._trouble(error)

    def _trouble(self, error: OSError) -> None:
        """Warn of the file system, once; the next flush tries again."""
        if not self._warned:
            self._warned = True
            where = f" {error.filename}" if error.filename else ""
            warn(f"record file{where}: {error.strerror}; what cannot be written is counted")
