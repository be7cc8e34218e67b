"""The cache follows the record files; what cannot be read is named; SQL reaches nothing else."""

from __future__ import annotations

import gzip
import os

import pytest
from planted_run import write_planted_run

pytest.importorskip("duckdb")

from slime_profiler_plugin.analyze import RunTables, TablesError, cache_folder
from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.read import FolderOfRunsError, ReadError
from slime_profiler_plugin.testing import ProcessFile


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _files(run):
    return sorted(RunPaths.at(run).records.glob("*/*"))


def _names(run):
    with RunTables(run) as tables:
        rows = tables.sql("SELECT name FROM phases ORDER BY start_ns, id").rows
        return [name for (name,) in rows], tables.unreadable(), tables.cache


def _process(out, pid=3, names=("forward", "backward")):
    process = ProcessFile("small", pid=pid, role="actor", rank=0)
    for number, name in enumerate(names):
        process.phase(name, number * 100, number * 100 + 50, rollout=0)
    return process.write(out)


def test_only_what_changed_is_read_again(tmp_path):
    run = write_planted_run(tmp_path / "runs")
    with RunTables(run) as tables:
        first = tables.cache
    assert (first.files_read, first.files_unchanged) == (7, 0)
    assert first.bytes == first.path.stat().st_size
    assert first.path.parent == cache_folder()
    with RunTables(run) as tables:
        assert (tables.cache.files_read, tables.cache.files_unchanged) == (0, 7)
    path = _files(run)[0]
    with path.open("ab") as stream:
        stream.write(
            b'{"kind":"phase","id":9999,"name":"mine","start_ns":5,"dur_ns":7,"tid":1,"rollout":7}\n'
        )
    with RunTables(run) as tables:
        assert (tables.cache.files_read, tables.cache.files_unchanged) == (1, 6)
        assert tables.rollouts()[-1] == "7"
        assert tables.sql("SELECT count(*) FROM phases WHERE name = 'mine'").rows == [(1,)]
        assert tables.sql("SELECT count(*) FROM processes").rows == [(7,)]
    path.unlink()
    with RunTables(run) as tables:
        assert tables.sql("SELECT count(*) FROM processes").rows == [(6,)]


def test_a_deleted_or_damaged_cache_is_made_anew(tmp_path):
    _process(tmp_path)
    _, _, state = _names(tmp_path / "small")
    state.path.write_bytes(b"no database")
    assert _names(tmp_path / "small")[0] == ["forward", "backward"]
    state.path.unlink()
    assert _names(tmp_path / "small")[2].files_read == 1


def test_who_reads_goes_on_while_a_new_version_is_made(tmp_path):
    path = _process(tmp_path)
    with RunTables(tmp_path / "small") as old:
        path.write_bytes(path.read_bytes() + b'{"kind":"mark","name":"m","start_ns":1,"tid":1}\n')
        with RunTables(tmp_path / "small") as new:
            assert new.sql("SELECT count(*) FROM marks").rows == [(1,)]
        assert old.sql("SELECT count(*) FROM marks").rows == [(0,)]


def test_bad_lines_are_counted_and_named(tmp_path):
    path = _process(tmp_path)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(
        b"".join([whole[0], b"{bad\n", whole[1], b'{"kind":"phase","id":"x"}\n', whole[2], b'{"ki'])
    )
    names, unreadable, _ = _names(tmp_path / "small")
    assert names == ["forward", "backward"]
    assert [each["line"] for each in unreadable] == [2, 4, 6]
    assert {each["path"] for each in unreadable} == {str(path)}


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind":"phase","id":1,"name":"far","start_ns":99999999999999999999,"dur_ns":1,"tid":1}\n',
        b'{"kind":"phase","id":1,"name":"back","start_ns":5,"dur_ns":-1,"tid":1}\n',
    ],
)
def test_impossible_numbers_are_counted(tmp_path, line):
    path = _process(tmp_path)
    path.write_bytes(path.read_bytes() + line)
    names, unreadable, _ = _names(tmp_path / "small")
    assert names == ["forward", "backward"]
    assert sum(each["lost"] for each in unreadable) == 1


def test_a_newer_version_an_empty_file_and_a_torn_segment_are_told(tmp_path):
    _process(tmp_path)
    newer = _process(tmp_path, pid=4)
    newer.write_bytes(newer.read_bytes().replace(b'"version":"1.0"', b'"version":"2.0"'))
    empty = _process(tmp_path, pid=5)
    empty.write_bytes(b"")
    torn = _process(tmp_path, pid=6)
    packed = gzip.compress(torn.read_bytes() * 50)
    torn.unlink()
    torn.with_suffix(".000.jsonl.gz").write_bytes(packed[: len(packed) - 20])
    _, unreadable, _ = _names(tmp_path / "small")
    told = {os.path.basename(each["path"]).partition("-")[0]: each["kind"] for each in unreadable}
    assert told == {"4": "refused", "5": "refused", "6": "truncated"}


@pytest.mark.parametrize("name", ["a[1]b", "a*b", "a'b\"c", "a b;--"])
def test_a_folder_of_any_name(tmp_path, name):
    (tmp_path / name).mkdir()
    _process(tmp_path / name)
    assert _names(tmp_path / name / "small")[0] == ["forward", "backward"]


def test_what_is_no_run(tmp_path):
    _process(tmp_path)
    with pytest.raises(FolderOfRunsError):
        RunTables(tmp_path)
    with pytest.raises(ReadError):
        RunTables(tmp_path / "absent")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_cache_that_cannot_be_written_is_named(tmp_path, cache):
    _process(tmp_path)
    cache.mkdir()
    cache.chmod(0o500)
    with pytest.raises(ReadError, match="XDG_CACHE_HOME"):
        RunTables(tmp_path / "small")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM glob('/*')",
        "COPY phases TO '/tmp/slime_profiler_out.csv'",
        "ATTACH '/tmp/slime_profiler_other.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "EXPORT DATABASE '/tmp/slime_profiler_export'",
        "CREATE TABLE mine AS SELECT 1",
        "DELETE FROM phases",
        "SELECT * FROM",
        "SELECT nothing FROM phases",
    ],
)
def test_sql_reads_the_tables_and_nothing_else(tmp_path, query):
    _process(tmp_path)
    with RunTables(tmp_path / "small") as tables:
        with pytest.raises(TablesError):
            tables.sql(query)
        assert tables.sql("SELECT count(*) FROM phases").rows == [(2,)]
