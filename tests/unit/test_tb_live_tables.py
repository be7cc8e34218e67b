"""Tables of a run that grows: one update for all who ask, and older tables while it takes long."""

from __future__ import annotations

import threading
import time

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("tensorboard", exc_type=ImportError)

from slime_profiler_plugin.analyze import TablesUnavailableError
from slime_tb_plugin import _live_tables
from slime_tb_plugin._cache_folders import CacheFolders
from slime_tb_plugin._live_tables import LiveTables
from slime_tb_plugin._log_folder import LogFolder, RunFolder


class Slow:
    """Stands in for `RunTables`; each one made counts, and waits until it may go on."""

    made = 0
    may_go_on = threading.Event()
    error: Exception | None = None

    def __init__(self, _run, _cache):
        Slow.made += 1
        self.number = Slow.made
        assert Slow.may_go_on.wait(60)
        if Slow.error is not None:
            raise Slow.error


@pytest.fixture
def slow(monkeypatch):
    Slow.made, Slow.error = 0, None
    Slow.may_go_on = threading.Event()
    monkeypatch.setattr(_live_tables, "RunTables", Slow)
    monkeypatch.setattr(_live_tables, "_PATIENCE_S", 0.05)
    yield Slow
    Slow.may_go_on.set()


@pytest.fixture
def live(tmp_path):
    return LiveTables(lambda: tmp_path)


def run(tmp_path, version):
    return RunFolder("run", tmp_path, version, 0)


def number(tables):
    return tables.number


def test_many_who_ask_at_once_have_one_update(live, slow, tmp_path):
    found = []
    threads = [threading.Thread(target=lambda: found.append(live.get(run(tmp_path, "a")))) for _ in range(8)]
    for thread in threads:
        thread.start()
    slow.may_go_on.set()
    for thread in threads:
        thread.join()
    assert slow.made == 1
    assert {snapshot.version for snapshot in found} == {"a"}


def test_older_tables_answer_while_newer_ones_are_made(live, slow, tmp_path):
    slow.may_go_on.set()
    assert live.get(run(tmp_path, "a")).ask(number) == 1
    slow.may_go_on.clear()
    assert live.get(run(tmp_path, "b")).version == "a"
    assert live.get(run(tmp_path, "c")).version == "a"
    assert slow.made == 2
    slow.may_go_on.set()
    until = time.monotonic() + 30
    while live.get(run(tmp_path, "c")).version != "c" and time.monotonic() < until:
        time.sleep(0.01)
    assert live.get(run(tmp_path, "c")).version == "c"
    assert live.get(run(tmp_path, "c")).ask(number) == slow.made


def test_what_goes_wrong_is_told_to_all_and_tried_again(live, slow, tmp_path):
    slow.may_go_on.set()
    slow.error = TablesUnavailableError("no DuckDB")
    for _ in range(2):
        with pytest.raises(TablesUnavailableError):
            live.get(run(tmp_path, "a"))
    slow.error = None
    assert live.get(run(tmp_path, "a")).version == "a"


def test_after_a_long_update_it_rests(live, slow, monkeypatch, tmp_path):
    slow.may_go_on.set()
    monkeypatch.setattr(_live_tables, "_LONG_S", -1.0)
    monkeypatch.setattr(_live_tables, "_REST", 1e9)
    live.get(run(tmp_path, "a"))
    assert live.get(run(tmp_path, "b")).version == "a"
    assert slow.made == 1


def test_a_cache_folder_that_cannot_be_used_is_replaced(tmp_path, monkeypatch):
    runs = tmp_path / "runs"
    runs.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folders = CacheFolders(LogFolder(runs))
    assert folders.tables == tmp_path / "cache" / "slime-profiler" / "tables"
    assert folders.merged.is_dir()
    (tmp_path / "file").write_text("")
    for base in (runs, tmp_path / "file"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(base))
        folders = CacheFolders(LogFolder(runs))
        assert folders.tables.is_dir()
        assert not folders.tables.is_relative_to(base)
        assert folders.tables.parent == folders.merged.parent
    assert not list(runs.iterdir())
