"""What ``--roles`` and ``--ranks`` leave, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from slime_profiler_plugin.read import TraceFile

from ._options import MergeOptions
from ._words import bound_items, format_numbers

#: Roles and stretches of ranks that are named.
_TOLD: Final = 20


class Who(NamedTuple):
    """Who a process, or a trace, says that it is."""

    role: str | None
    rank: int | None


def tell_unmet(options: MergeOptions, members: Iterable[Who]) -> list[str]:
    """Which of the roles that are asked for nobody has, and which there are.

    >>> tell_unmet(MergeOptions(roles=frozenset({"actor", "judge"})), [Who("actor", 0), Who("engine", 1)])
    ['no process is of role judge; there are: actor, engine']
    """
    present = list(members)
    roles = {member.role for member in present}
    lacking = sorted((options.roles or frozenset()) - roles)
    return [f"no process is of role {', '.join(lacking)}; {_tell_roles(present)}"] if lacking else []


def tell_nothing_chosen(options: MergeOptions, members: Iterable[Who]) -> str:
    """Why nobody of `members`, who are some, is left.

    >>> tell_nothing_chosen(MergeOptions(ranks=frozenset({7})), [Who("actor", 0), Who("actor", 1)])
    'no process is of rank 7; there are: 0 to 1'
    """
    present = list(members)
    unmet = tell_unmet(options, present)
    if unmet:
        return unmet[0]
    wanted = format_numbers(sorted(options.ranks or ()), _TOLD)
    of_role = [member for member in present if options.roles is None or member.role in options.roles]
    whose = "" if options.roles is None else f" and role {', '.join(sorted(options.roles))}"
    ranks = sorted({member.rank for member in of_role if member.rank is not None})
    there = f"there are: {format_numbers(ranks, _TOLD)}" if ranks else "none says its rank"
    return f"no process is of rank {wanted}{whose}; {there}"


def choose_traces(traces: Sequence[TraceFile], options: MergeOptions) -> tuple[list[TraceFile], list[str]]:
    """Those that are asked for, and the others in words."""
    taken = [trace for trace in traces if options.takes(trace.owner.role, trace.owner.rank)]
    left_out = [
        f"{trace.path} (says no role)" if options.roles and trace.owner.role is None else str(trace.path)
        for trace in traces
        if not options.takes(trace.owner.role, trace.owner.rank)
    ]
    return taken, left_out


def _tell_roles(members: list[Who]) -> str:
    roles = sorted({member.role for member in members if member.role is not None})
    silent = sum(member.role is None for member in members)
    told = f"there are: {', '.join(bound_items(roles, _TOLD))}" if roles else "none says its role"
    if roles and silent:
        told += f"; {silent} say no role"
    return told
