"""What of the sources a merge shall write, and how."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from slime_profiler_plugin.read import MERGE_KEY, MOST_RANKS

from ._rollouts import MergeUsageError

#: More uncompressed text than this a browser may refuse, bytes.
BROWSER_BYTES: Final = 400_000_000
_STRETCH: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ns|us|ms|s)")
_SECONDS: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
_UNITS_NS: Final = {"ns": 1, "us": 1000, "ms": 10**6, "s": 10**9}

#: Told now and then: what is being done, bytes read so far, bytes to read.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class MergeOptions:
    """Choices of a merge; by default everything is written.

    `jobs`: worker processes, 0 for as many as there are cores. `ranks` and `roles`: only processes of those.
    `categories`: only events of those. `min_duration_ns`: only slices that lasted as long, arrows only where
    both of their slices are there. `window_ns`: only what touches that stretch, in ns from the start of the
    whole. `budget_bytes`: about how large the output may be before it is compressed; the shortest kernels go
    first; 0 for no bound. `archive`: also a ZIP of the untouched sources with Perfetto's manifest. `mark`:
    the top-level key that says what wrote the output. `progress` is told how far it is.
    """

    jobs: int = 0
    ranks: frozenset[int] | None = None
    roles: frozenset[str] | None = None
    categories: frozenset[str] | None = None
    min_duration_ns: int = 0
    window_ns: tuple[int, int] | None = None
    budget_bytes: int = 0
    archive: bool = False
    mark: str = MERGE_KEY
    progress: Progress | None = None

    def takes(self, role: str | None, rank: int | None) -> bool:
        """Whether events of such a process are asked for."""
        if self.roles is not None and role not in self.roles:
            return False
        return self.ranks is None or rank in self.ranks


def parse_options(
    *,
    ranks: str | None = None,
    roles: str | None = None,
    category: str | None = None,
    min_duration: str | None = None,
    window: str | None = None,
    budget_mb: int = 0,
    archive: bool = False,
    jobs: int = 0,
    progress: Progress | None = None,
) -> MergeOptions:
    """Choices as they are written on a command line. Raises `MergeUsageError`."""
    return MergeOptions(
        jobs=jobs,
        ranks=None if ranks is None else parse_ranks(ranks),
        roles=None if roles is None else parse_names(roles),
        categories=None if category is None else parse_names(category),
        min_duration_ns=0 if min_duration is None else parse_duration(min_duration),
        window_ns=None if window is None else parse_window(window),
        budget_bytes=budget_mb * 1_000_000,
        archive=archive,
        progress=progress,
    )


def parse_ranks(text: str) -> frozenset[int]:
    """Ranks as they are written on a command line.

    >>> sorted(parse_ranks("0,3-5"))
    [0, 3, 4, 5]

    Raises `MergeUsageError`.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        match = _STRETCH.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last - first > MOST_RANKS:
            raise MergeUsageError(
                f"--ranks {text!r}: allowed are numbers and stretches a-b, with commas between"
            )
        ranks.update(range(first, last + 1))
    return frozenset(ranks)


def parse_names(text: str) -> frozenset[str]:
    """Names with commas between.

    >>> sorted(parse_names("kernel, cpu_op"))
    ['cpu_op', 'kernel']
    """
    return frozenset(name.strip() for name in text.split(","))


def parse_duration(text: str) -> int:
    """A duration in ns.

    >>> parse_duration("1.5ms"), parse_duration("20us")
    (1500000, 20000)

    Raises `MergeUsageError`.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise MergeUsageError(
            f"--min-duration {text!r}: allowed is a number with ns, us, ms or s: 20us, 1.5ms"
        )
    return _scale(match[1], _UNITS_NS[match[2]])


def parse_window(text: str) -> tuple[int, int]:
    """A stretch of time in ns, from seconds; an end that is left out is the beginning or the end of all.

    >>> parse_window("1.5:2"), parse_window(":0.1")
    ((1500000000, 2000000000), (0, 100000000))

    Raises `MergeUsageError`.
    """
    first, colon, last = (part.strip() for part in text.partition(":"))
    if not colon or any(part and not _SECONDS.fullmatch(part) for part in (first, last)):
        raise MergeUsageError(f"--window {text!r}: allowed is START:END in seconds: 1.5:3")
    start = _scale(first, 10**9) if first else 0
    end = _scale(last, 10**9) if last else 2**61
    if start >= end:
        raise MergeUsageError(f"--window {text!r}: it ends before it begins")
    return start, end


def _scale(number: str, unit: int) -> int:
    whole, _, part = number.partition(".")
    return int(whole) * unit + int(part.ljust(9, "0") or 0) * unit // 10**9
