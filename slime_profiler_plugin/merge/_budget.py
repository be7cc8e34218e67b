"""Fitting an output into so many bytes: the shortest slices go first, of kernels before all others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, Raw, UnsetType

from slime_profiler_plugin.read import KERNEL_CATEGORIES, TraceEvent

from ._kinds import Bools, Ints

if TYPE_CHECKING:
    from ._table import Table

_ENCODER: Final = msgspec.json.Encoder()
#: Work on a device: what there is most of, and what the eye misses least.
_KERNELS: Final = frozenset(f'"{category}"'.encode() for category in KERNEL_CATEGORIES)
#: Classes of events: what is never dropped, kernels, all other slices.
KEPT, KERNEL, OTHER_SLICE = range(3)
#: Steps of durations per factor of two.
_STEPS: Final = 32
_BINS: Final = 64 * _STEPS
#: New numbers and names make an event about this much longer, bytes.
_SLACK: Final = 12


class DurationSizes(NamedTuple):
    """Bytes of a trace: `kept`, and by class and step of duration (`duration_step`) what could be dropped."""

    kept: int
    kernels: Ints
    others: Ints


class Thresholds(NamedTuple):
    """Slices shorter than these (ns) are dropped, by class; 0: none."""

    kernel_ns: int = 0
    other_ns: int = 0


class EventSizes:
    """Bytes of every event of a trace, and which of them are kernels."""

    def __init__(self) -> None:
        self._sizes: list[Ints] = []
        self._kernels: list[Bools] = []

    def add(self, piece: list[TraceEvent]) -> None:
        """Take in the next events."""
        self._sizes.append(np.array([len(_ENCODER.encode(event)) for event in piece], dtype=np.int64))
        self._kernels.append(np.array([_is_kernel(event.cat) for event in piece], dtype=np.bool_))

    def classes(self, is_slice: Bools) -> Ints:
        """The class of every event."""
        kernels = np.concatenate(self._kernels) if self._kernels else np.zeros(0, np.bool_)
        return np.where(is_slice, np.where(kernels, KERNEL, OTHER_SLICE), KEPT).astype(np.int8)

    def by_duration(self, table: Table, is_left: Bools) -> DurationSizes:
        """Bytes of what is left; an arrow counts with its kernel, else with the slice it begins on."""
        sizes = np.concatenate(self._sizes) if self._sizes else np.zeros(0, np.int64)
        sizes = np.where(is_left, sizes + _SLACK, 0)
        classes, slices, partners = table.sizes_class, table.flow_slices, table.flow_partners
        mine = np.flatnonzero((slices >= 0) & (slices != table.flow_events))
        events, owners = table.flow_events[mine], slices[mine]
        others = np.where(partners[mine] >= 0, slices[partners[mine]], -1)
        to_kernel = (others >= 0) & (classes[others] == KERNEL) & (classes[owners] != KERNEL)
        np.add.at(sizes, np.where(to_kernel, others, owners), sizes[events])
        sizes[events] = 0
        steps = duration_step(np.asarray(table.lengths))
        kept = int(sizes[classes == KEPT].sum())
        by_class = [
            np.bincount(steps[classes == each], sizes[classes == each], _BINS).astype(np.int64)
            for each in (KERNEL, OTHER_SLICE)
        ]
        return DurationSizes(kept, *by_class)


def _is_kernel(category: Raw | UnsetType) -> bool:
    return category is not UNSET and bytes(category) in _KERNELS


def duration_step(lengths: Ints) -> Ints:
    """The step of each duration (ns): exact below 64 ns, then 32 steps for each factor of two.

    >>> duration_step(np.array([0, 31, 32, 33, 64, 65, 66])).tolist()
    [0, 31, 32, 33, 64, 64, 65]
    """
    _, bits = np.frexp(lengths.astype(np.float64))
    shifts = np.maximum(bits.astype(np.int64) - 6, 0)
    return np.where(shifts > 0, (shifts << 5) + (lengths >> shifts), lengths)


def step_start(step: int) -> int:
    """The least duration of a step, ns."""
    if step < 2 * _STEPS:
        return step
    shift = step // _STEPS - 1
    return (step - (shift << 5)) << shift


def choose_thresholds(sizes: Iterable[DurationSizes], fixed: int, budget: int) -> Thresholds:
    """The least thresholds with which `fixed` bytes and the sources fit into `budget`, as far as they can."""
    listed = list(sizes)
    kernels = sum((each.kernels for each in listed), np.zeros(_BINS, np.int64))
    others = sum((each.others for each in listed), np.zeros(_BINS, np.int64))
    over = fixed + sum(each.kept for each in listed) + int(kernels.sum()) + int(others.sum()) - budget
    if over <= 0:
        return Thresholds()
    kernel_ns = _threshold(kernels, over)
    over -= int(kernels.sum())
    return Thresholds(kernel_ns, _threshold(others, over) if over > 0 else 0)


def _threshold(sizes: Ints, over: int) -> int:
    """The duration below which there are `over` bytes; just beyond all of them when there are not so many."""
    reached = np.flatnonzero(np.cumsum(sizes) >= over)
    if not len(reached):
        reached = np.flatnonzero(sizes)[-1:]
    return step_start(int(reached[0]) + 1) if len(reached) else 0
