"""Merged timelines in a cache folder: each is made once, by one thread, however many ask for it."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from slime_profiler_plugin.merge import BROWSER_BYTES, MergeError, MergeOptions, format_missing, merge_run
from slime_profiler_plugin.read import ReadError
from slime_profiler_plugin.schema import INITIAL

from ._answers import MergeAnswer
from ._log_folder import RunFolder

#: What a slice is cut down to, bytes of text.
SLICE_BYTES: Final = 100_000_000
#: Files that are kept; those used least lately go.
_MOST_FILES: Final = 32
_SUFFIX: Final = ".trace.json.gz"
#: How the names of those sources of a merge end that are traces, and no records.
_TRACES: Final = (".json)", ".json.gz)")
_MOST_PROBLEMS: Final = 20
_log = logging.getLogger("slime_profiler_plugin")


class _Made(msgspec.Struct, kw_only=True):
    """What stands beside a merged file."""

    bytes: int
    exact: bool
    windows: int
    problems: list[str]


class Wanted(NamedTuple):
    """A timeline: of which run, attempt and rollout; whether the shortest kernels may be left out."""

    run: RunFolder
    attempt: int
    rollout: str
    cut: bool


class Merges:
    """Starts merges and says how far they are. They are kept in the folder that `find_folder` tells.

    `embed_bytes`: more text than that is too large to show.
    """

    def __init__(self, find_folder: Callable[[], Path]) -> None:
        self._find_folder = find_folder
        self._lock = threading.Lock()
        self._one = threading.Lock()
        self._jobs: dict[str, MergeAnswer] = {}
        self.embed_bytes = BROWSER_BYTES

    def start(self, wanted: Wanted) -> MergeAnswer:
        """Start it where it neither runs nor is there; what there is to say of it."""
        name = _name(wanted)
        with self._lock:
            told = self._state(name, wanted)
            if told.state not in ("absent", "failed"):
                return told
            job = self._jobs[name] = MergeAnswer(state="waiting")
            thread = threading.Thread(
                target=self._work, args=(name, wanted, job), name="slime_profiler_merge", daemon=True
            )
            thread.start()
            return _copy(job)

    def progress(self, wanted: Wanted) -> MergeAnswer:
        """How far it is; starts nothing."""
        with self._lock:
            return self._state(_name(wanted), wanted)

    def file(self, wanted: Wanted) -> Path | None:
        """The merged file, where it is done."""
        path = self._path(_name(wanted))
        return path if self._read_made(path) is not None else None

    def _state(self, name: str, wanted: Wanted) -> MergeAnswer:
        job = self._jobs.get(name)
        if job is not None and job.state != "done":
            return _copy(job)
        path = self._path(name)
        made = self._read_made(path)
        if made is None:
            return MergeAnswer(state="absent")
        with suppress(OSError):
            os.utime(path)
        return MergeAnswer(
            state="done",
            bytes=made.bytes,
            packed_bytes=path.stat().st_size,
            too_large=made.bytes > self.embed_bytes,
            exact=made.exact,
            windows=made.windows,
            problems=made.problems,
            file=f"{wanted.run.key.strip('.') or 'run'}-attempt{wanted.attempt}-{wanted.rollout}{_SUFFIX}",
        )

    def _path(self, name: str) -> Path:
        return self._find_folder() / f"{name}{_SUFFIX}"

    def _read_made(self, path: Path) -> _Made | None:
        try:
            made = msgspec.json.decode(path.with_suffix(".made").read_bytes(), type=_Made)
        except (OSError, msgspec.MsgspecError):
            return None
        return made if path.is_file() else None

    def _work(self, name: str, wanted: Wanted, job: MergeAnswer) -> None:
        def tell(step: str, done: int, total: int) -> None:
            with self._lock:
                job.step, job.done_bytes, job.all_bytes = step, done, total

        with self._one:
            with self._lock:
                job.state = "running"
            try:
                self._merge(self._path(name), wanted, tell)
            except (ReadError, MergeError, OSError) as error:
                self._fail(job, str(error))
            except Exception as error:  # noqa: BLE001 - whatever it is, the tab must hear of it
                _log.exception("a merge for the TensorBoard tab failed")
                self._fail(job, f"{type(error).__name__}: {error}")
            else:
                with self._lock:
                    job.state = "done"

    def _fail(self, job: MergeAnswer, reason: str) -> None:
        with self._lock:
            job.state, job.error = "failed", reason

    def _merge(self, path: Path, wanted: Wanted, tell: object) -> None:
        options = MergeOptions(
            budget_bytes=SLICE_BYTES if wanted.cut else 0,
            progress=tell,  # type: ignore[arg-type]
        )
        report = merge_run(
            [wanted.run.path],
            INITIAL if wanted.rollout == INITIAL else int(wanted.rollout),
            out=path,
            attempt=wanted.attempt,
            options=options,
        )
        output = report.outputs[0]
        exact = not output.kernel_threshold_ns and not output.slice_threshold_ns
        windows = sum(each.written > 0 and each.source.endswith(_TRACES) for each in output.sources)
        problems = [f"{each.file}: {each.kind}: {each.reason}" for each in report.damage]
        problems += [
            format_missing(each.role, each.seen, each.world_size, each.missing, _MOST_PROBLEMS)
            for each in report.ranks
            if each.missing
        ]
        made = _Made(bytes=output.size, exact=exact, windows=windows, problems=problems[:_MOST_PROBLEMS])
        beside = path.with_suffix(".made")
        fresh = beside.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(msgspec.json.encode(made))
        fresh.replace(beside)
        self._forget_oldest(path.parent)

    def _forget_oldest(self, folder: Path) -> None:
        ages = []
        for path in folder.glob(f"*{_SUFFIX}"):
            with suppress(FileNotFoundError):
                ages.append((path.stat().st_mtime_ns, path))
        for _, path in sorted(ages)[:-_MOST_FILES]:
            path.unlink(missing_ok=True)
            path.with_suffix(".made").unlink(missing_ok=True)


def _name(wanted: Wanted) -> str:
    """Equal for two exactly when the files, the choice and what becomes of them are."""
    run = wanted.run
    told = f"{run.path}\0{run.version}\0{wanted.attempt}\0{wanted.rollout}\0{wanted.cut}"
    return hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _copy(answer: MergeAnswer) -> MergeAnswer:
    return msgspec.convert(msgspec.to_builtins(answer), MergeAnswer)
