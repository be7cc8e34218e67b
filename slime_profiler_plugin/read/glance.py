"""A quick look at the processes of a run: the beginning and the end of what each wrote.

Of a process only the first lines of its first and of its last segment are read, and the last ones.
What only the middle says, this does not know: rollouts between the first and the last, syncs, drops,
damage, an identity that changed there and is repeated in no later segment.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from slime_profiler_plugin import layout, schema
from slime_profiler_plugin.clock import ClockPair, PairFolder
from slime_profiler_plugin.schema import NewerVersionError, SchemaError

from ._damage import Damage, ReadError, VanishedError
from ._entries import list_sources, may_be_file
from ._files import read_blocks
from ._index import impossible_time
from ._process import ProcessSeen, update_identity
from .folders import read_run_id
from .records import BadLines, after_tear

#: Bytes at the beginning of a segment: its process line, definitions, the first phases.
_HEAD: Final = 1 << 15
#: Bytes at the end; more when they hold no whole line, whose attrs are bounded.
_TAILS: Final = (1 << 16, 1 << 20)
#: How often the files of a process are listed anew when one got another name meanwhile.
_RETRIES: Final = 4


class Glance(ProcessSeen):
    """What a quick look at one process tells.

    `bytes` is the size of its `files` on disk, `rollouts` those named in what was read.
    """

    def __init__(self, files: list[Path], size: int, process: schema.Process) -> None:
        super().__init__(process)
        self.files = files
        self.bytes = size
        self.rollouts: set[int | str] = set()

    @property
    def last_unix_ns(self) -> int:
        """Its last sign of life by its own wall clock, Unix ns."""
        pair = self.clock_pairs[-1]
        return self.last_ns + pair.unix_ns - pair.mono_ns


class _Sign(msgspec.Struct, gc=False):
    """What a glance wants of most lines; the others are decoded in full."""

    kind: str
    rollout: int | str | None = None
    start_ns: int = 0
    dur_ns: int = 0
    seen_ns: int = 0
    at_ns: int = 0


_Seen: TypeAlias = "_Sign | schema.Process | schema.Identity | schema.Clock | schema.End"

_signs: Final = msgspec.json.Decoder(_Sign)
_SIGNS: Final = frozenset({"phase", "open", "mark", "drop"})
_IN_FULL: Final = frozenset({"process", "identity", "clock", "end"})


def glance_processes(folder: Path, damage: list[Damage], ignored: list[Path]) -> list[Glance]:
    """A glance at every process of the run in `folder`, in the order in which they started.

    Files and folders that cannot be used are added to `damage`, those that are no record files to `ignored`.
    """
    run_id = read_run_id(folder, damage)
    files: dict[tuple[Path, str], list[Path]] = defaultdict(list)
    for path in list_sources(layout.RunPaths.at(folder).records, damage):
        match = layout.RECORD_FILE.fullmatch(path.name)
        if match and may_be_file(path):
            files[path.parent, f"{match['pid']}-{match['start']}"].append(path)
        else:
            ignored.append(path)
    found = []
    for (where, stem), paths in files.items():
        try:
            glance = _glance_at(where, stem, paths, run_id)
        except (NewerVersionError, ReadError) as error:
            kind = "missing" if isinstance(error, VanishedError) else "refused"
            damage.append(Damage(str(paths[0]), kind, str(error).removeprefix(f"{paths[0]}: ")))
            continue
        damage.extend(glance.damage)
        found.append(glance)
    return sorted(found, key=lambda g: (g.process.attempt, g.process.start_unix_ns, g.process.incarnation))


def _glance_at(where: Path, stem: str, paths: list[Path], run_id: str) -> Glance:
    """While a file gets another name under our hands, we look again."""
    for _ in range(_RETRIES):
        with suppress(VanishedError):
            return _glance(_segments(paths), run_id)
        paths = sorted(where.glob(f"{stem}.*")) or paths
    return _glance(_segments(paths), run_id)


def _segments(paths: list[Path]) -> list[Path]:
    """The files of a process, oldest first; one for each segment."""
    numbered: dict[tuple[bool, int], Path] = {}
    for path in paths:
        match = layout.RECORD_FILE.fullmatch(path.name)
        if match:  # one that is being compressed is there twice, whole both times
            numbered.setdefault((not match["segment"], int(match["segment"] or 0)), path)
    return [numbered[key] for key in sorted(numbered)]


def _glance(files: list[Path], run_id: str) -> Glance:
    """Raises `ReadError` and `NewerVersionError` for what cannot be used."""
    try:
        sizes = [path.stat().st_size for path in files]
    except FileNotFoundError as error:
        raise VanishedError(f"{error.filename}: {error.strerror}") from error
    except OSError as error:
        raise ReadError(f"{error.filename}: {error.strerror}") from error
    held = [path for path, size in zip(files, sizes, strict=True) if size]
    if not held:
        raise ReadError(f"{files[0]}: the file is empty")
    damage: list[Damage] = []
    lines: list[_Seen] = []
    if len(held) > 1:
        lines.extend(_read_ends(held[0], damage, tail=False))
    lines.extend(_read_ends(held[-1], damage))
    process = next((line for line in lines if isinstance(line, schema.Process)), None)
    if process is None:
        raise ReadError(f"{files[0]}: no readable process line")
    if process.run_id != run_id:
        raise ReadError(f"{files[0]}: belongs to run {process.run_id}")
    glance = Glance(files, sum(sizes), process)
    glance.damage = damage
    clocks = PairFolder()
    for line in lines:
        _take(glance, line, clocks)
    glance.clocks = clocks.pairs()
    return glance


def _take(glance: Glance, line: _Seen, clocks: PairFolder) -> None:
    if isinstance(line, _Sign):
        kind = line.kind
        if kind == "drop":
            glance.last_ns = max(glance.last_ns, line.at_ns)
            return
        start = end = line.start_ns
        if kind == "phase":
            end += line.dur_ns
        elif kind == "open":
            end = line.seen_ns
        if impossible_time(start, end) is not None:
            return
        if end > glance.last_ns:
            glance.last_ns = end
        if line.rollout is not None:
            glance.rollouts.add(line.rollout)
    elif isinstance(line, schema.Clock):
        clocks.add(ClockPair(line.mono_ns, line.unix_ns, line.error_ns))
        glance.last_ns = max(glance.last_ns, line.mono_ns)
    elif isinstance(line, schema.End):
        glance.end = line
        glance.last_ns = max(glance.last_ns, line.at_ns)
    else:
        update_identity(glance.process, line)


def _read_ends(path: Path, damage: list[Damage], *, tail: bool = True) -> Iterator[_Seen]:
    """The lines at the beginning of a segment and, with `tail`, at its end."""
    bad = BadLines(path, damage)
    packed = path.suffix == ".gz"
    for size in _TAILS:
        found: list[Damage] = []  # a second try finds the same
        head, rest = (_packed_ends if packed else _plain_ends)(path, size, found, tail=tail)
        if rest is None or 0 <= rest.find(b"\n") < len(rest) - 1:
            break
    damage.extend(found)
    if rest is None:
        yield from _decode_all(head if tail else head[: head.rfind(b"\n") + 1], bad)
    else:
        yield from _decode_all(head[: head.rfind(b"\n") + 1], bad)
        yield from _decode_all(rest[rest.find(b"\n") + 1 :], bad)
    bad.close()


def _plain_ends(path: Path, size: int, damage: list[Damage], *, tail: bool) -> tuple[bytes, bytes | None]:  # noqa: ARG001 - nothing is found to be wrong with the bytes of a plain file
    """The first bytes and the last `size` ones; all of a small file, and then ``None``."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
            if not tail:
                return head, None
            end = stream.seek(0, 2)
            if end <= _HEAD + size:
                stream.seek(0)
                return stream.read(end), None
            stream.seek(end - size)
            return head, stream.read(size)
    except FileNotFoundError as error:
        raise VanishedError(f"{path}: {error.strerror}") from error
    except OSError as error:
        raise ReadError(f"{path}: {error.strerror}") from error


def _packed_ends(path: Path, size: int, damage: list[Damage], *, tail: bool) -> tuple[bytes, bytes | None]:
    """The same of the content of a compressed one, which has to be read whole for its end."""
    head = b""
    kept: deque[bytes] = deque()
    total = 0
    for block in read_blocks(path, damage):
        total += len(block)
        if len(head) < _HEAD:
            head += block
            if not tail and len(head) >= _HEAD:
                return head, None
        kept.append(block)
        while sum(map(len, kept)) - len(kept[0]) >= size:
            kept.popleft()
    rest = b"".join(kept)
    return (rest, None) if len(rest) == total else (head, rest)


def _decode_all(text: bytes, bad: BadLines) -> list[_Seen]:
    """The lines of `text` that tell something; a last one without its newline may still be whole."""
    *lines, last = text.split(b"\n")
    lines = [raw for raw in lines if raw]
    found: list[_Seen] = []
    for sign, raw in zip(_decode_signs(lines), lines, strict=True):
        if sign is not None and sign.kind in _SIGNS:
            found.append(sign)
        elif sign is None or sign.kind in _IN_FULL:
            found.extend(_decode(raw, bad))
    if last:
        try:
            found.extend(_decode_line(last))
        except SchemaError as error:
            _refuse_newer(error)
            bad.torn(None, len(last))
            found.extend(_decode_after_tear(last))
    return found


def _decode_signs(lines: list[bytes]) -> Sequence[_Sign | None]:
    """All at once where that is possible; ``None`` for those that must be looked at singly."""
    try:
        signs = _signs.decode_lines(b"\n".join(lines))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        signs = []
    return signs if len(signs) == len(lines) else [None] * len(lines)


def _decode(raw: bytes, bad: BadLines) -> Iterator[_Seen]:
    try:
        yield from _decode_line(raw)
    except SchemaError as error:
        _refuse_newer(error)
        bad.add(None, str(error))
        yield from _decode_after_tear(raw)


def _decode_line(raw: bytes) -> Iterator[_Seen]:
    try:
        sign = _signs.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        schema.decode_line(raw)  # says what is wrong, unless it is of a kind that we do not know
        return
    if sign.kind in _SIGNS:
        yield sign
    elif sign.kind in _IN_FULL:
        line, _ = schema.decode_line(raw)
        assert isinstance(line, (schema.Process, schema.Identity, schema.Clock, schema.End))
        yield line


def _decode_after_tear(raw: bytes) -> Iterator[_Seen]:
    with suppress(SchemaError):
        yield from _decode_line(after_tear(raw))


def _refuse_newer(error: SchemaError) -> None:
    if isinstance(error, NewerVersionError):
        raise error
