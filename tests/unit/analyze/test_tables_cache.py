"""The cache follows the record files; what cannot be read is named; SQL reaches nothing else."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from planted_run import write_planted_run

pytest.importorskip("duckdb")

from slime_profiler_plugin.analyze import VIEWS, RunTables, TablesError, cache_folder
from slime_profiler_plugin.analyze._engine import load_duckdb
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
        b'{"kind":"phase","id":1,"name":"long","start_ns":%d,"dur_ns":%d,"tid":1}\n' % (2**62, 2**62),
        b'{"kind":"open","id":9,"name":"long","start_ns":5,"seen_ns":%d,"tid":1}\n' % (2**63 - 1),
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


@pytest.mark.parametrize("last", [0, 2**62, 2**63 - 1])
@pytest.mark.parametrize("epoch", [0, 2**62])
def test_clocks_however_far_apart_make_tables(tmp_path, epoch, last):
    _process(tmp_path)
    other = ProcessFile("small", pid=9, role="engine", host="far", clock_domain="far", epoch_ns=epoch)
    other.phase("engine_load", 5, 2**62, rollout=0)
    path = other.write(tmp_path)
    path.write_bytes(path.read_bytes() + b'{"kind":"end","at_ns":%d,"reason":"stop"}\n' % last)
    with RunTables(tmp_path / "small") as tables:
        for view in VIEWS:
            tables.view(view)
        lengths = tables.sql("SELECT dur_ns FROM phases WHERE name = 'engine_load'").rows
    assert lengths == [(2**62 - 5,)]


def test_sums_beyond_64_bits_cost_no_row(tmp_path):
    process = ProcessFile("small", pid=3, role="actor", rank=0)
    about = {"rollout": 0, "sync": 0, "source": process.source, "bytes": 2**63 - 1, "tensors": 2**63 - 1}
    for bucket in range(2):
        process.phase("bucket_send", bucket, bucket + 2**61, bucket=bucket, **about)
        process.phase("train_step", bucket, bucket + 2**62 - 10, rollout=0)
    process.write(tmp_path)
    with RunTables(tmp_path / "small") as tables:
        (row,) = tables.view("sync").records()
        assert (row["buckets"], row["bytes"], row["tensors"]) == (2, None, None)
        assert {row["phase"] for row in tables.view("ranks").records()} == {"bucket_send", "train_step"}


ODD_NAMES = ["a[1]b", "a*b", "a'b\"c", "a b;--", "a\nb", "\u202eab", os.fsdecode(b"a\xffb")]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_folder_of_any_name(tmp_path, name):
    (tmp_path / name).mkdir()
    path = _process(tmp_path / name)
    path.write_bytes(path.read_bytes() + b"{bad\n")
    path.parent.rename(path.parent.with_name(name))
    names, unreadable, _ = _names(tmp_path / name / "small")
    assert (names, len(unreadable)) == (["forward", "backward"], 1)


def test_what_is_no_file_is_told_and_not_waited_for(tmp_path):
    path = _process(tmp_path)
    os.mkfifo(path.with_name("9-9.jsonl"))
    names, (unreadable,), _ = _names(tmp_path / "small")
    assert names == ["forward", "backward"]
    assert (Path(unreadable["path"]).name, unreadable["reason"]) == ("9-9.jsonl", "not a file")


@pytest.mark.parametrize("name", ["\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT THREE}", "1e3", "-1", " 5 "])
def test_a_rollout_whose_name_is_no_number_is_none(tmp_path, name):
    process = ProcessFile("small", pid=3, role="actor", rank=0)
    process.phase("train_step", 0, 10, rollout=0)
    process.phase("train_step", 20, 30, rollout=name)
    process.write(tmp_path)
    with RunTables(tmp_path / "small") as tables:
        assert set(tables.choose("all")) == {"0", name}
        assert tables.choose("0:9999") == ["0"]


def test_what_is_no_run(tmp_path):
    _process(tmp_path)
    with pytest.raises(FolderOfRunsError):
        RunTables(tmp_path)
    with pytest.raises(ReadError):
        RunTables(tmp_path / "absent")


def test_a_cache_that_was_cut_off_is_made_anew(tmp_path):
    _process(tmp_path)
    with RunTables(tmp_path / "small") as tables:
        path = tables.cache.path
        wanted = [tables.view(view) for view in VIEWS]
    whole = path.read_bytes()
    # Behind its headers, the engine reads a file only when it is asked about it.
    for size in (12_288, len(whole) - 262_144):
        path.write_bytes(whole[:size])
        with RunTables(tmp_path / "small") as tables:
            assert [tables.view(view) for view in VIEWS] == wanted


def test_what_a_killed_process_left_of_a_cache_goes(tmp_path):
    _process(tmp_path)
    with RunTables(tmp_path / "small") as tables:
        path = tables.cache.path
    left = path.with_name(f".making-{path.stem}-left")
    left.mkdir()
    (left / "tables.duckdb").write_bytes(b"half")
    with RunTables(tmp_path / "small"):
        assert not left.exists()


def test_an_engine_that_cannot_write_is_told_in_one_line(tmp_path, monkeypatch):
    _process(tmp_path)
    full = (
        "Checkpoint failed.\nOriginal error: Could not write file: No space left on device\n\nStack Trace:\n…"
    )

    def fail(*_):
        raise load_duckdb().IOException(full)

    monkeypatch.setattr("slime_profiler_plugin.analyze._cache.derive_tables", fail)
    with pytest.raises(
        ReadError, match=r"Could not write file: No space left on device; set XDG_CACHE_HOME$"
    ):
        RunTables(tmp_path / "small")


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
