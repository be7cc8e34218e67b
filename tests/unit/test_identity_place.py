"""Role and rank from the environment, as actors are given them and their children inherit them."""

from __future__ import annotations

from typing import Any

import pytest
from surroundings import surroundings

from slime_profiler_plugin.identity import (
    LAUNCH_VARIABLE,
    RUN_ID_VARIABLE,
    IdentityError,
    Place,
    change_place,
    resolve,
)

REWARD = {"SLIME_PROFILER_ROLE": "reward", "SLIME_PROFILER_RANK": "2", "SLIME_PROFILER_WORLD_SIZE": "4"}


def place(tmp_path, environ: dict[str, str], **told: Any):
    here = surroundings({RUN_ID_VARIABLE: "r", LAUNCH_VARIABLE: "l", **environ})
    found = resolve(here.environ, told, tmp_path, here=here)
    return found.role, found.rank, found.world_size, found.by_environment


def test_nobody_tells_so_the_environment_does(tmp_path):
    assert place(tmp_path, REWARD) == ("reward", 2, 4, {"role", "rank", "world_size"})


def test_its_rank_goes_before_that_of_a_launcher(tmp_path):
    launcher = {"RANK": "1", "WORLD_SIZE": "2"}
    assert place(tmp_path, {**REWARD, **launcher})[:3] == ("reward", 2, 4)
    assert place(tmp_path, {**launcher, "SLIME_PROFILER_ROLE": "critic"})[:3] == ("critic", 1, 2)
    assert place(tmp_path, {**launcher, "SLIME_PROFILER_ROLE": "reward"})[:3] == ("reward", None, None)


def test_what_is_told_goes_before_it(tmp_path):
    assert place(tmp_path, REWARD, role="reward", rank=3) == ("reward", 3, None, frozenset())
    assert place(tmp_path, REWARD, role="reward")[:3] == ("reward", 2, 4)
    assert place(tmp_path, REWARD, role="engine") == ("engine", None, None, frozenset())


def test_a_rank_without_a_role_is_nobodys(tmp_path):
    assert place(tmp_path, {"SLIME_PROFILER_RANK": "2"})[:3] == (None, None, None)


@pytest.mark.parametrize(
    "bad", [{"SLIME_PROFILER_RANK": "two"}, {"SLIME_PROFILER_ROLE": "a b"}, {"SLIME_PROFILER_RANK": "4"}]
)
def test_what_cannot_be_is_refused(tmp_path, bad):
    with pytest.raises(IdentityError, match=next(iter(bad.values()))):
        place(tmp_path, {**REWARD, **bad})


def test_another_role_that_turns_out_later_takes_the_numbers_with_it():
    known = Place(role="reward", rank=2, world_size=4)
    by = frozenset({"role", "rank", "world_size"})
    assert change_place(known, {"ranks": {"tp": 0}}, by) == (Place(**REWARDED, ranks={"tp": 0}), by)
    assert change_place(known, {"role": "reward"}, by)[0] == known
    assert change_place(known, {"role": "actor"}, by) == (Place(role="actor"), frozenset())
    assert change_place(known, {"rank": 1}, by) == (Place(role="reward", rank=1), frozenset({"role"}))


REWARDED = {"role": "reward", "rank": 2, "world_size": 4}
