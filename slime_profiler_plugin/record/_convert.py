"""From queued items to lines, in the writer thread: names, definitions, the budget."""

from __future__ import annotations

from collections import Counter
from typing import Final

from slime_profiler_plugin import schema
from slime_profiler_plugin.phases import find_definition

from ._budget import Budget
from ._drops import Drops
from ._guard import FAILURE
from ._lines import AnyLine, to_line
from ._queue import Item, RawRecord
from ._values import as_text

UNFIT: Final = "cannot be encoded"
#: Phases of muted names whose brackets may still come.
_MOST_MUTED_IDS: Final = 50_000
_MOST_NAMES: Final = 10_000


class Converter:
    """Makes lines; leaves out, and counts, what the budget does not admit."""

    def __init__(self, budget: Budget, drops: Drops) -> None:
        self.budget = budget
        self._drops = drops
        #: Text of the names the program used, which may be anything.
        self._names: dict[object, str] = {}
        self._defined: set[str] = set()
        self._muted: Counter[tuple[str, str]] = Counter()
        self._muted_ids: dict[int, None] = {}

    def begin_segment(self) -> None:
        """Nothing is defined in the new one."""
        self._defined.clear()

    def undefine(self, name: str) -> None:
        """The definition of `name` was lost: it goes before its next use."""
        self._defined.discard(name)

    def to_lines(self, items: list[Item]) -> list[AnyLine]:
        """The lines of `items` in their order, definitions before first uses."""
        lines: list[AnyLine] = []
        for item in items:
            if isinstance(item, tuple):
                self._convert(item, lines)
            elif isinstance(item, schema.Device) and item.id in self._muted_ids:
                del self._muted_ids[item.id]
                self._muted["device", ""] += 1
            else:
                lines.append(item)
        return lines

    def count_muted(self) -> None:
        """Tell the drops what the budget has kept out since the last call."""
        muted, self._muted = self._muted, Counter()
        for (what, name), count in muted.items():
            self._drops.add(what, "budget", count, {name: count} if name else None)

    def _convert(self, item: RawRecord, lines: list[AnyLine]) -> None:
        try:
            name = self._names.get(item[0]) or self._new_name(item[0])
            if not self.budget.admits(name, item[5] - item[4]):
                self._mute(item, name)
                return
            if name not in self._defined:
                self._define(name, lines)
            lines.append(to_line(item, name))
        except FAILURE:  # a name that has no hash
            self._drops.add("mark" if item[1] is None else "phase", UNFIT)

    def _new_name(self, name: object) -> str:
        text = as_text(name)
        if len(self._names) < _MOST_NAMES:
            self._names[name] = text
        return text

    def _define(self, name: str, lines: list[AnyLine]) -> None:
        self._defined.add(name)
        definition = find_definition(name)
        if definition is not None:
            lines.append(schema.PhaseDef(**definition._asdict()))

    def _mute(self, item: RawRecord, name: str) -> None:
        phase_id = item[1]
        self._muted["mark" if phase_id is None else "phase", name] += 1
        if phase_id is not None:
            if len(self._muted_ids) >= _MOST_MUTED_IDS:
                del self._muted_ids[next(iter(self._muted_ids))]
            self._muted_ids[phase_id] = None
