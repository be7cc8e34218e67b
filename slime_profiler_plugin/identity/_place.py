"""A process's place in its run: role, rank, parallel ranks, world size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from numbers import Integral
from typing import Any, Final

import msgspec

from ._errors import IdentityError
from ._surroundings import RANK_VARIABLE, ROLE_VARIABLE, WORLD_SIZE_VARIABLE, Surroundings

_ROLE: Final = re.compile(r"[A-Za-z0-9_]+")  # what a trace file's name can carry
#: The roles that a launcher's RANK and WORLD_SIZE can number.
_TRAINERS: Final = frozenset({"actor", "critic"})


class Place(msgspec.Struct, kw_only=True, frozen=True):
    """What is known of it so far. The fields are those of `schema.Identity`."""

    role: str | None = None
    rank: int | None = None
    ranks: dict[str, int] = {}
    world_size: int | None = None
    engine: dict[str, int] = {}


_ALLOWED: Final = {
    "role": 'text such as "actor"',
    "rank": "a whole number >= 0",
    "ranks": 'an object such as {"tp": 0, "pp": 1}',
    "world_size": "a whole number >= 1",
    "engine": 'an object such as {"index": 0}',
}


def check_place(told: Mapping[str, Any]) -> Place:
    """`told` as a place. Raises `IdentityError` that names what cannot be, and what is allowed."""
    unknown = told.keys() - _ALLOWED.keys()
    if unknown:
        names = ", ".join(sorted(unknown))
        raise IdentityError(f"identity: unknown key {names}; allowed: {', '.join(_ALLOWED)}")
    fields = {field.name: field.type for field in msgspec.structs.fields(Place)}
    place = Place(**{key: _convert(key, value, fields[key]) for key, value in told.items()})
    if place.role is not None and not _ROLE.fullmatch(place.role):
        raise IdentityError(f"role {place.role!r} may hold letters, digits and _ only")
    if place.world_size is not None and place.world_size < 1:
        raise IdentityError(f"world_size {place.world_size} is less than 1")
    if place.rank is not None and place.rank < 0:
        raise IdentityError(f"rank {place.rank} is negative")
    if place.rank is not None and place.world_size is not None and place.rank >= place.world_size:
        raise IdentityError(f"rank {place.rank} is not below world_size {place.world_size}")
    return place


def _convert(key: str, value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(_plain(value), kind)
    except msgspec.ValidationError:
        raise IdentityError(f"{key}: {value!r} is not allowed; allowed: {_ALLOWED[key]}") from None


def _plain(value: Any) -> Any:
    """Whole numbers of other libraries, such as NumPy's, as Python's own."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def find_place(here: Surroundings, told: Mapping[str, Any]) -> tuple[Place, frozenset[str]]:
    """The place by what the caller of `start` and the environment say.

    Also which of its keys are the environment's. What is told goes before it. ``SLIME_PROFILER_RANK``
    counts beside a ``SLIME_PROFILER_ROLE`` that is this process's; else ``RANK`` and ``WORLD_SIZE``, which
    may be another role's. Raises `IdentityError`.
    """
    place = check_place(told)
    said_role = here.text(ROLE_VARIABLE)
    found: dict[str, Any] = {} if place.role is not None else {"role": said_role}
    role = place.role or said_role
    if place.rank is None:
        is_ours = role is not None and role == said_role and here.text(RANK_VARIABLE) is not None
        if is_ours or _is_numbered_by_environment(role):
            rank, size = (RANK_VARIABLE, WORLD_SIZE_VARIABLE) if is_ours else ("RANK", "WORLD_SIZE")
            found["rank"] = here.integer(rank)
            if place.world_size is None:
                found["world_size"] = here.integer(size)
    found = {key: value for key, value in found.items() if value is not None}
    return check_place({**told, **found}), frozenset(found)


def change_place(
    place: Place, told: Mapping[str, Any], by_environment: frozenset[str]
) -> tuple[Place, frozenset[str]]:
    """`place` after more was told; with which of its keys are the environment's, before and after.

    Numbers among those are forgotten where it turns out that they number another role. Raises
    `IdentityError`, also when all of it together cannot be.
    """
    change = check_place(told)
    role = change.role if "role" in told else place.role
    known = msgspec.structs.asdict(place)
    is_another = role != place.role if "role" in by_environment else not _is_numbered_by_environment(role)
    if change.rank is not None or is_another:
        known.update(dict.fromkeys(by_environment - {"role"}))
        by_environment &= {"role"}
    return check_place({**known, **told}), by_environment - told.keys()


def _is_numbered_by_environment(role: str | None) -> bool:
    return role is None or role in _TRAINERS
