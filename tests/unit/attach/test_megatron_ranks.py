"""Ranks are Megatron's, and stay known while its groups are gone."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from recordings import stop

from slime_profiler_plugin import schema, timeline
from slime_profiler_plugin.attach.megatron import _ranks

RANKS = {"tp": 1, "pp": 0, "dp": 2, "cp": 0, "ep": 3}


@pytest.fixture
def layout(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What Megatron says, and torch of the world."""
    functions = {_ranks._RANKS[name]: (lambda rank=rank: rank) for name, rank in RANKS.items()}
    layout = SimpleNamespace(model_parallel_is_initialized=lambda: True, **functions)
    world = SimpleNamespace(get_rank=lambda: 5, get_world_size=lambda: 8)
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", layout)
    monkeypatch.setitem(sys.modules, "torch.distributed", world)
    monkeypatch.setattr(_ranks, "_told", None)
    return layout


def destroyed() -> int:
    """A rank of a group that slime destroyed when the trainer went to sleep."""
    group = None
    return group.rank()  # type: ignore[attr-defined, no-any-return]


def test_a_sleeping_trainer_keeps_its_ranks(tmp_path, layout):
    assert timeline.start({"out": str(tmp_path), "outputs": {"nvtx": False}}, run_id="run", role="actor")
    _ranks.tell_ranks()
    layout.get_tensor_model_parallel_rank = destroyed
    _ranks.tell_ranks()
    recording = stop(tmp_path)
    assert recording.drops == []
    assert [line.ranks for line in recording.all(schema.Identity) if line.ranks] == [RANKS]


def test_ranks_that_were_never_known_are_told(tmp_path, layout):
    assert timeline.start({"out": str(tmp_path), "outputs": {"nvtx": False}}, run_id="run", role="actor")
    layout.get_tensor_model_parallel_rank = destroyed
    _ranks.tell_ranks()
    with timeline.phase("train_step"):
        pass
    (drop,) = stop(tmp_path).drops
    assert drop.what == "attach: megatron ranks"
    assert "AttributeError" in drop.reason
