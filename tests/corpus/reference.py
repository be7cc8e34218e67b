"""Source files read in another way than the product reads them: whole, by Python's parser, in decimals."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any, NamedTuple

_TRAILING_COMMA = re.compile(r",(\s*[\]}])")


class Reference(NamedTuple):
    """What a file says: its top-level keys without the events (none for a bare array), and its events."""

    about: dict[str, Any]
    events: list[Any]

    @property
    def base_ns(self) -> int:
        """Where VizTracer wrote it, its own metadata have it."""
        about = {**self.about.get("viztracer_metadata", {}), **self.about}
        return int(about.get("baseTimeNanoseconds", 0))

    def timed(self, phases: str) -> list[dict[str, Any]]:
        return [
            event for event in self.events if isinstance(event, dict) and event.get("ph", "")[:1] in phases
        ]


def read_reference(path: Path) -> Reference | None:
    """The file, or ``None`` where Python's parser cannot read it, as lenient as it can be made."""
    data = path.read_bytes()
    if data.startswith(b"\x1f\x8b"):
        data = zlib.decompressobj(31).decompress(data)
    text = data.decode("utf-8", "replace")
    for candidate in (text, _TRAILING_COMMA.sub(r"\1", text), text.rstrip().rstrip(",") + "]"):
        try:
            content = json.loads(candidate, strict=False, parse_float=Decimal, parse_constant=lambda _: None)
        except ValueError:
            continue
        if isinstance(content, list):
            return Reference({}, content)
        return Reference(
            {key: value for key, value in content.items() if key != "traceEvents"}, content["traceEvents"]
        )
    return None


def exact_slices(reference: Reference) -> Counter[tuple[str, int, int]]:
    """(name, Unix time in ns, length in ns) of every X that has a time."""
    found: Counter[tuple[str, int, int]] = Counter()
    for event in reference.timed("X"):
        start, length = to_ns(event.get("ts")), to_ns(event.get("dur", 0))
        if start is not None and length is not None:
            found[event["name"], reference.base_ns + start, length] += 1
    return found


def to_ns(value: object) -> int | None:
    """Decimal microseconds as whole ns, half away from 0; ``None`` for what is no number."""
    try:
        return int((Decimal(str(value)) * 1000).to_integral_value(ROUND_HALF_UP))
    except (ArithmeticError, ValueError):
        return None
