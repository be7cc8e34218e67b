"""Case n: which file is made, and how it is damaged. The same n gives the same bytes."""

from __future__ import annotations

import random
from typing import NamedTuple

import fuzz_mutations as mutations
from fuzz_seeds import SHAPES, Seed, make_seed

_BOMBS = 0.02
_UNDAMAGED = 0.03
_OF_BYTES = 0.2
_WITH_PARTNER = 0.5
_PARTNERS = ("kineto", "ray", "begins")


class Case(NamedTuple):
    """What is merged: `data` under the name of `seed`, and `partner`, which is good, where there is one.

    `text` is the JSON that the damaged file was packed from, ``None`` where the packed bytes were damaged.
    `whole` are the names of events that end before the first change.
    """

    seed: Seed
    data: bytes
    text: bytes | None
    how: list[str]
    partner: Seed | None

    @property
    def whole(self) -> set[str]:
        if self.text is None:
            return set()
        same = common_prefix(self.seed.text, self.text)
        return {name for end, name in self.seed.marks if end <= same}


def make_case(number: int) -> Case:
    """The case of that number."""
    chance = random.Random(number)
    shapes = sorted(SHAPES)
    mine, another = chance.choices(shapes, k=2)
    seed, other = make_seed(mine, chance), make_seed(another, chance)
    met = tuple("kineto" if shape == "sglang" else shape.partition("_")[0] for shape in (mine, another))
    # Of a shape that is not met in the damaged file, so that names tell which file an event is from.
    partner = make_seed(next(shape for shape in _PARTNERS if not shape.startswith(met)), chance)
    damaged, text, how = _damage(chance, seed, other)
    data = damaged[: mutations.LARGEST]
    return Case(
        seed,
        data,
        text if len(data) == len(damaged) else None,
        how,
        partner._replace(name=f"good-{partner.name}") if chance.random() < _WITH_PARTNER else None,
    )


def _damage(chance: random.Random, seed: Seed, other: Seed) -> tuple[bytes, bytes | None, list[str]]:
    draw = chance.random()
    if draw < _UNDAMAGED:
        return seed.data, seed.text, ["as_it_is"]
    if draw < _UNDAMAGED + _BOMBS:
        return mutations.bomb(chance, seed.text, b""), None, ["bomb"]
    times = chance.choice((1, 1, 1, 2, 4))
    if not seed.text or draw < _UNDAMAGED + _BOMBS + _OF_BYTES:
        of_bytes = chance.choices(mutations.OF_BYTES, k=times)
        data = seed.data
        for mutation in of_bytes:
            data = mutation(chance, data, other.data)
        return data, None, [mutation.__name__ for mutation in of_bytes]
    of_text = chance.choices(mutations.OF_TEXT, k=times)
    text = seed.text
    for mutation in of_text:
        text = mutation(chance, text, other.text or other.data)
    return seed.pack(text), text, [mutation.__name__ for mutation in of_text]


def common_prefix(one: bytes, other: bytes) -> int:
    """How many bytes at the start are the same."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
