"""What merge and the listing of runs say in the same words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def format_range(first: int, last: int) -> str:
    """``3`` or ``3 to 5``, both included."""
    return str(first) if first == last else f"{first} to {last}"


def bound_items(items: Sequence[str], told: int) -> list[str]:
    """The first `told` of them, and how many more there are.

    >>> bound_items(["a", "b", "c"], 1)
    ['a', '2 more']
    """
    more = len(items) - told
    return [*items[:told], f"{more} more"] if more > 0 else list(items)


def format_missing(role: str, seen: int, world_size: int | None, missing: Sequence[int], told: int) -> str:
    """Which ranks of a role have no process; at most `told` stretches of them (`missing`, in order).

    >>> format_missing("actor", 3, 7, [1, 2, 3, 6], 20)
    'actor: 3 of 7 ranks seen; missing rank 1 to 3, 6'
    """
    numbers = format_numbers(missing, told)
    return f"{role}: {format_of(seen, world_size)} ranks seen; missing rank {numbers}"


def format_numbers(numbers: Sequence[int], told: int) -> str:
    """Numbers in order, as at most `told` stretches.

    >>> format_numbers([1, 2, 3, 7], 20)
    '1 to 3, 7'
    """
    return ", ".join(bound_items(_stretches(numbers), told))


def format_of(seen: int, world_size: int | None) -> str:
    """``2 of 3``, ``2 of ?`` where nobody said of how many."""
    return f"{seen} of {'?' if world_size is None else world_size}"


def format_ending(ending: str, replaced_by: int | None, open_phases: Mapping[str, int] | None = None) -> str:
    """How a process ended, which phases (by name, how many) were still open, which incarnation came after.

    >>> format_ending("ended early", 2, {"train_step": 1})
    'ended early, in open phase train_step, replaced by incarnation 2'
    """
    told = [ending]
    if open_phases:
        still = ", ".join(f"{name} ({n})" if n > 1 else name for name, n in open_phases.items())
        told.append(f"in open phase {still}")
    if replaced_by is not None:
        told.append(f"replaced by incarnation {replaced_by}")
    return ", ".join(told)


def _stretches(numbers: Sequence[int]) -> list[str]:
    """Of numbers in order.

    >>> _stretches([1, 2, 3, 7])
    ['1 to 3', '7']
    """
    breaks = [i for i in range(1, len(numbers)) if numbers[i] != numbers[i - 1] + 1]
    starts, ends = [0, *breaks], [*breaks, len(numbers)]
    return [format_range(numbers[a], numbers[b - 1]) for a, b in zip(starts, ends, strict=True) if b > a]
