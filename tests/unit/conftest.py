"""What the tests of the TensorBoard tab share."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from tab_requests import Get, make_get

from slime_profiler_plugin.testing import write_synthetic_run


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # On a busy machine an update may take so long that the tab answers from older tables meanwhile.
    with suppress(ImportError):
        monkeypatch.setattr("slime_tb_plugin._live_tables._PATIENCE_S", 100.0)
        monkeypatch.setattr("slime_tb_plugin._live_tables._REST", 0.0)
    write_synthetic_run(tmp_path / "runs", trainers=2, engines=2, buckets=3, rollouts=2)
    return tmp_path / "runs"


@pytest.fixture
def get(runs) -> Get:
    return make_get(runs)
