"""What was wrong with a trace, in the words of `Damage`."""

from __future__ import annotations

from pathlib import Path

from ._chunks import TraceText
from ._damage import Damage
from ._files import read_blocks


def report_flaws(path: Path, text: TraceText, total: int, damage: list[Damage], *, is_cut: bool) -> None:
    """Adds what `text` found, of which `total` events were given, to `damage`.

    `is_cut`: that the file was cut stands there already.
    """
    places = [bad.position for bad in text.walk.bad]
    places += [at for at, _ in (*text.members.lost, *text.members.mended)]
    lines = _number_lines(path, places)
    _report_list(path, text, lines, damage)
    _report_members(path, text, lines, damage)
    # The format lets the bracket of a bare list be missing.
    if text.closed or (text.layout == "array" and not text.torn_bytes):
        return
    if not is_cut:
        damage.append(Damage(str(path), "truncated", "the list of events has no end"))
    reason = f"{total} whole events before the end, {text.torn_bytes} bytes of an unfinished one"
    damage.append(Damage(str(path), "truncated", reason, None, 1 if text.torn_bytes else 0))


def _report_list(path: Path, text: TraceText, lines: dict[int, int], damage: list[Damage]) -> None:
    walk = text.walk
    file = str(path)
    for bad in walk.bad:
        reason = f"event at byte {bad.position}: {bad.reason}"
        if bad.lost > 1:
            reason += f"; {bad.lost} events cannot be read"
        damage.append(Damage(file, "corrupt", reason, lines.get(bad.position), bad.lost))
    if walk.more_bad:
        reason = f"{walk.more_bad} more events cannot be read"
        damage.append(Damage(file, "corrupt", reason, None, walk.more_bad))
    if walk.foreign is not None:
        reason = f"the bytes of another trace begin at byte {walk.foreign}: its events are left out"
        damage.append(Damage(file, "corrupt", reason, None, walk.foreign_events))
    if walk.guessed:
        at = walk.first_guess
        reason = f"{walk.guessed} events have a backslash that escapes nothing, the first at byte {at}"
        damage.append(Damage(file, "repaired", reason))
    if walk.repaired:
        reason = (
            f"{walk.repaired} events are no strict JSON (raw control characters, NaN, commas before a "
            f"bracket), the first at byte {walk.first_repair}"
        )
        damage.append(Damage(file, "repaired", reason))
    if walk.replaced:
        reason = f"{walk.replaced} bytes that are not UTF-8 were replaced, in {walk.replaced_names} names"
        damage.append(Damage(file, "replaced", reason))
    if text.trailing is not None:
        at, size, events = text.trailing
        reason = f"{size} bytes behind the end of the trace, at byte {at}, are no part of it"
        damage.append(Damage(file, "corrupt", reason, None, events))


def _report_members(path: Path, text: TraceText, lines: dict[int, int], damage: list[Damage]) -> None:
    for kind, faults in (("corrupt", text.members.lost), ("repaired", text.members.mended)):
        for at, reason in faults:
            damage.append(Damage(str(path), kind, f"metadata at byte {at}: {reason}", lines.get(at)))


def _number_lines(path: Path, places: list[int]) -> dict[int, int]:
    """The line, from 1, of each of `places` in the content: they are few, and counting costs a reading."""
    found: dict[int, int] = {}
    wanted = sorted(set(places))
    begin, line = 0, 1
    blocks = read_blocks(path, []) if wanted else iter(())
    for block in blocks:
        at = 0
        while wanted and wanted[0] < begin + len(block):
            line += block.count(b"\n", at, wanted[0] - begin)
            at = wanted[0] - begin
            found[wanted.pop(0)] = line
        if not wanted:
            break
        line += block.count(b"\n", at)
        begin += len(block)
    return found
