"""What the checks share: brackets whose losses can be looked at, and how to judge them.

Nothing here asks for a GPU, so that it runs against the fake device layer too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from slime_profiler_plugin.record._devices import DeviceBrackets
from slime_profiler_plugin.schema import Device


@dataclass
class Losses:
    """What brackets tell the recorder, kept."""

    drops: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def guard(self) -> Losses:
        return self

    def drop(self, what: str, reason: str, count: int = 1) -> None:
        assert what == "device"
        self.drops[reason] += count

    def failed(self, part: str, error: BaseException | str) -> None:
        self.failures.append(f"{part}: {error!r}")


class Brackets:
    """Device brackets that keep what they emit by the phase's id."""

    def __init__(self, **injected: Any) -> None:
        self.losses = Losses()
        self.by_id: dict[int, Device] = {}
        self._rests = 0
        self.brackets = DeviceBrackets(self.losses, self._keep, **injected)

    def _keep(self, line: Device) -> None:
        assert line.id not in self.by_id, f"bracket {line.id} came twice"
        self.by_id[line.id] = line

    def phase(self, number: int, work: Callable[[], object]) -> bool:
        """One phase; whether it got a bracket."""
        handle = self.brackets.start()
        work()
        self.brackets.finish(handle, number)
        return handle is not None

    def anchor(self, rest: Callable[[float], object] = time.sleep) -> None:
        """Let an anchor follow what was recorded, and take all that was reached."""
        rest(1.1)
        self._rests += 1
        self.phase(-self._rests, lambda: None)
        self.brackets.suspend()

    def pool(self) -> tuple[int, int]:
        """Events made, and events that are neither free, nor pending, nor anchors: leaked."""
        made = leaked = 0
        for device in self.brackets._devices.values():
            made += device.pool.made
            leaked += device.pool.made - device.pool.free - device.pending - device.clock.held
        return made, leaked


@dataclass(frozen=True)
class Enclosure:
    """How far brackets miss what they should enclose. Negative: inside by so much."""

    checked: int
    worst_ns: int
    beyond_uncertainty: int

    def __str__(self) -> str:
        return (
            f"{self.checked} brackets, worst excess over the stated uncertainty "
            f"{self.worst_ns / 1000:.1f} us, {self.beyond_uncertainty} beyond it"
        )


def judge_enclosure(pairs: Sequence[tuple[Device, int, int]]) -> Enclosure:
    """`pairs`: a bracket, and begin and end of what it should enclose, on its clock."""
    excess = [
        max(
            line.start_ns - line.uncertainty_ns - begin,
            end - (line.start_ns + line.dur_ns + line.uncertainty_ns),
        )
        for line, begin, end in pairs
    ]
    return Enclosure(len(pairs), max(excess), sum(e > 0 for e in excess))


def drift_ppm(points: Sequence[tuple[int, int]]) -> float:
    """Slope of (host ns, device ns) points less one, in parts per million: least squares."""
    host_0, device_0 = points[0]
    xs = [host - host_0 for host, _ in points]
    ys = [(device - device_0) - (host - host_0) for host, device in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    over = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return 1e6 * over / sum((x - mean_x) ** 2 for x in xs)


def paired_overhead(times: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Median and quartiles of on / off - 1 over pairs of (off, on)."""
    ratios = sorted(on / off - 1 for off, on in times)
    quarter = len(ratios) // 4
    return ratios[len(ratios) // 2], ratios[quarter], ratios[-1 - quarter]
