"""Folders and files that may not be looked at are told; what can be read is used all the same."""

import os
import shutil
import stat

import pytest
from command_line import run
from permissions import mode

from slime_profiler_plugin.analyze import _listing, list_runs
from slime_profiler_plugin.merge import merge_run
from slime_profiler_plugin.read import Damage, ReadError, find_runs, glance_processes, read_run
from slime_profiler_plugin.testing import write_synthetic_run, write_trace_window

DENIED = "Permission denied"


@pytest.fixture
def made(tmp_path):
    """A run whose engines are on host1."""
    return write_synthetic_run(tmp_path / "runs", engine_host_offset_ns=10**15)


def test_host_whose_folder_may_not_be_read_is_refused_and_merge_exits_3(made):
    host = made.folder / "records" / "host1"
    with mode(host, 0):
        seen = read_run([made.folder])
        glanced: list[Damage] = []
        glances = glance_processes(made.folder, glanced, [])
        result = run("merge", made.folder)
        listed = run("ls", made.folder)
    assert seen.damage == glanced == [Damage(str(host), "refused", DENIED)]
    assert (
        {r.process.role for r in seen.processes} == {g.process.role for g in glances} == {"driver", "actor"}
    )
    assert result.exit_code == 3
    assert f"  refused: {host}: {DENIED}" in result.stdout.splitlines()
    assert listed.exit_code == 0
    assert f"  {host}: refused: {DENIED}" in listed.stdout.splitlines()


def test_host_whose_names_can_be_read_and_nothing_else_is_refused_file_by_file(made):
    host = made.folder / "records" / "host1"
    files = sorted(map(str, host.iterdir()))
    with mode(host, 0o444):
        seen = read_run([made.folder])
        listing = list_runs(made.folder.parent)
        assert run("merge", made.folder).exit_code == 3
    assert sorted(seen.damage) == [Damage(file, "refused", DENIED) for file in files]
    assert sorted(listing.runs[0].damage) == [f"{file}: refused: {DENIED}" for file in files]
    assert {process.role for process in listing.runs[0].processes} == {"driver", "actor"}


def test_copy_that_may_not_be_read_costs_nothing_of_the_other(made, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(made.folder, copy)
    host = made.folder / "records" / "host1"
    files = sorted(map(str, host.iterdir()))
    with mode(host, 0o444):
        seen = read_run([made.folder, copy])
    assert len(seen.processes) == 5
    assert sorted(seen.damage) == [Damage(file, "refused", DENIED) for file in files]


def test_records_that_may_not_be_read_at_all_are_why_nothing_is_merged(made):
    records = made.folder / "records"
    with mode(records, 0):
        result = run("merge", made.folder)
        listing = list_runs(made.folder)
    assert result.exit_code == 1
    assert f"{records}: refused: {DENIED}" in result.stderr
    assert listing.runs[0].damage == [f"{records}: refused: {DENIED}"]


def test_windows_that_may_not_be_read_are_refused(made):
    window = write_trace_window(made.folder.parent, made.trainers[0], [1], [])
    for folder in (window.parent, window.parent.parent):
        with mode(folder, 0):
            seen = read_run([made.folder])
            (listed,) = list_runs(made.folder).runs
            report = merge_run([made.folder], 1)
        assert (seen.windows, seen.damage) == ([], [Damage(str(folder), "refused", DENIED)])
        assert report.exit_code() == 3
        assert listed.damage == [f"{folder}: refused: {DENIED}"]


def test_run_whose_top_may_not_be_listed_is_listed_and_says_so(made):
    with mode(made.folder, 0o111):
        seen = read_run([made.folder])
        (listed,) = list_runs(made.folder.parent).runs
    assert seen.damage == [Damage(str(made.folder), "refused", DENIED)]
    assert len(seen.processes) == 5
    assert listed.damage == [f"{made.folder}: refused: {DENIED}"]


@pytest.mark.parametrize("bits", [0, 0o444])
def test_folder_that_may_not_be_looked_at_hides_no_run_beside_it(made, bits):
    out = made.folder.parent
    other = out / "zz"
    other.mkdir()
    (other / "run.json").touch()
    with mode(other, bits):
        damage: list[Damage] = []
        assert find_runs(out, damage) == [made.folder]
        listing = list_runs(out)
        listed, merged = run("ls", out), run("merge", out)
    assert damage == [Damage(str(other), "refused", DENIED)]
    assert ([r.run_id for r in listing.runs], listing.others) == (["synthetic"], [])
    assert listed.exit_code == 0
    assert listed.stdout.splitlines()[-1] == f"cannot be read: {other}: refused: {DENIED}"
    assert merged.exit_code == 1
    assert merged.stdout.splitlines() == [str(made.folder)]
    assert merged.stderr.splitlines()[-1] == f"cannot be read: {other}: refused: {DENIED}"


def test_where_no_run_can_be_looked_at_the_error_names_what_cannot(tmp_path):
    (tmp_path / "zz").mkdir()
    with mode(tmp_path / "zz", 0):
        with pytest.raises(ReadError, match=f"no run in it; .*zz: refused: {DENIED}"):
            list_runs(tmp_path)
        with pytest.raises(ReadError, match=f"is no run folder: .*zz: {DENIED}"):
            read_run([tmp_path])


def test_run_that_cannot_be_summarized_hides_no_other(made, monkeypatch):
    bad = write_synthetic_run(made.folder.parent, run_id="bad").folder

    def fail_for_bad(folder, *rest):
        if folder == bad:
            raise OSError(5, "Input/output error", str(bad / "x"))
        return glance_processes(folder, *rest)

    monkeypatch.setattr(_listing, "glance_processes", fail_for_bad)
    listing = list_runs(made.folder.parent)
    assert [r.run_id for r in listing.runs] == ["synthetic"]
    assert listing.others == []
    assert listing.damage == [f"{bad}: refused: [Errno 5] Input/output error: '{bad / 'x'}'"]


def test_run_file_that_is_a_pipe_is_refused_and_keeps_nobody_waiting(made):
    file = made.folder / "run.json"
    file.unlink()
    os.mkfifo(file)
    assert stat.S_ISFIFO(file.stat().st_mode)
    (listed,) = list_runs(made.folder.parent).runs
    assert (listed.run_id, listed.damage) == ("synthetic", [f"{file}: refused: not a file"])
    assert read_run([made.folder]).damage == [Damage(str(file), "refused", "not a file")]


@pytest.mark.parametrize(
    "content", [b"[" * 200_000, b'{"a":' * 200_000, b"", b"\xff", b"[]", b"{", b'{"run_id": 5}']
)
def test_damaged_run_file_is_told(made, content):
    file = made.folder / "run.json"
    file.write_bytes(content)
    (listed,) = list_runs(made.folder.parent).runs
    (told,) = listed.damage
    assert told.startswith(f"{file}: corrupt: ")
    assert listed.run_id == read_run([made.folder]).run_id == "synthetic"
    assert [str(each) for each in read_run([made.folder]).damage] == [told]


def test_run_file_that_may_not_be_read_is_told(made):
    file = made.folder / "run.json"
    with mode(file, 0):
        (listed,) = list_runs(made.folder).runs
    assert listed.damage == [f"{file}: refused: {DENIED}"]


def test_line_nested_too_deeply_is_a_bad_line(made):
    path = next(made.folder.glob("records/host0/200-*"))
    with path.open("ab") as stream:
        stream.write(b'{"kind":"mark","attrs":{"a":' + b"[" * 200_000 + b"\n")
        stream.write(b'{"kind":"news","a":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n")
    seen = read_run([made.folder])
    assert [(each.file, each.kind) for each in seen.damage] == [(str(path), "corrupt")] * 2
    assert len(seen.processes) == 5
    (listed,) = list_runs(made.folder).runs
    assert all(each.startswith(str(path)) for each in listed.damage)
    assert listed.damage
