"""Writes the table of `phases.md` anew from `slime_profiler_plugin.phases`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from slime_profiler_plugin.phases import BUILT_IN

PAGE: Final = Path(__file__).with_name("phases.md")
_BEGIN: Final = "<!-- table: python docs/update_phases.py -->\n"
_END: Final = "<!-- end of table -->\n"


def updated(page: str) -> str:
    """The text of the page with the table as it should be."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    rows = [
        f"| `{phase.name}` | {_names(phase.parents)} | {_names(phase.roles)} | {phase.doc} |\n"
        for phase in BUILT_IN.values()
    ]
    head = "| phase | inside | roles | what it is |\n|---|---|---|---|\n"
    return before + _BEGIN + head + "".join(rows) + _END + after


def _names(names: tuple[str, ...]) -> str:
    return " ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
