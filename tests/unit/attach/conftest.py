"""Fixtures for slime's hooks."""

from __future__ import annotations

import os

import pytest
import slime_stand_ins
from recordings import Recording, read_file, record_files

from slime_profiler_plugin import timeline
from slime_profiler_plugin.attach import _wrap
from slime_profiler_plugin.attach.slime import _manager, _trainer, register


@pytest.fixture
def stand_ins(monkeypatch):
    """The stand-ins by file, not attached."""
    for name in [name for name in os.environ if name.startswith("SLIME_")]:
        monkeypatch.delenv(name)
    made = slime_stand_ins.load(monkeypatch)
    monkeypatch.setattr(_trainer, "_waiting", _trainer.Waiting())
    yield made
    timeline.stop()
    _wrap.unwrap_all()
    _manager._urls.clear()
    _manager._serving.clear()
    _manager._windows.clear()


@pytest.fixture
def record(stand_ins, tmp_path):  # noqa: ARG001 - they are to be there first
    """Attaches and records; gives the phases so far, in order of their starts."""
    register()
    timeline.start({"out": str(tmp_path), "outputs": {"nvtx": False}}, run_id="run", role="actor")

    def phases():
        timeline.flush()
        (file,) = record_files(tmp_path)
        recording = Recording(read_file(file))
        assert [drop.reason for drop in recording.drops] == []
        return sorted(recording.phases, key=lambda phase: (phase.start_ns, phase.id))

    return phases
