"""An NVTX domain that tells what is called, in the place of the nvtx package's."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

GROUPS = ("trainer", "sync", "engine", "rollout", "user")


def told(attributes: SimpleNamespace) -> str:
    """Attributes as one word: name, category, payload."""
    rollout = "" if attributes.payload is None else f"@{attributes.payload}"
    return f"<{attributes.message}:{GROUPS[attributes.category - 1]}{rollout}>"


class Domain:
    """An NVTX domain that tells what is called."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.ranges = 0
        self.registered: list[str] = []
        self.marks: list[SimpleNamespace] = []

    def get_category_id(self, name: str) -> int:
        return 1 + GROUPS.index(name)

    def get_event_attributes(
        self, message: str, category: int = 0, payload: int | None = None
    ) -> SimpleNamespace:
        self.registered.append(message)
        return SimpleNamespace(message=message, category=category, payload=payload)

    def mark(self, attributes: SimpleNamespace) -> None:
        self.marks.append(attributes)

    def push_range(self, attributes: SimpleNamespace) -> None:
        self.calls.append(("push", told(attributes)))

    def pop_range(self) -> None:
        self.calls.append(("pop",))

    def start_range(self, attributes: SimpleNamespace) -> int:
        self.ranges += 1
        self.calls.append(("start", told(attributes), self.ranges))
        return self.ranges

    def end_range(self, number: int) -> None:
        self.calls.append(("end", number))


class DummyDomain(Domain):
    """What the nvtx package hands out where it sees no tool."""


def hand_out(monkeypatch: pytest.MonkeyPatch, domain: Domain) -> None:
    """Have the nvtx package hand out `domain` for ours."""
    nvtx = ModuleType("nvtx")
    nvtx.get_domain = {"slime": domain}.__getitem__  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvtx", nvtx)
