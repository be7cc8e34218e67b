"""The verb: what is looked at, what is printed, and the exit codes."""

from __future__ import annotations

import gzip
import json
import os

import pytest
from command_line import run
from small_traces import slice_, write

from slime_profiler_plugin.check import _check
from slime_profiler_plugin.testing import write_synthetic_run

CROSSING = [slice_("A", 3, 3), slice_("B", 5, 3)]


def test_a_clean_file(tmp_path):
    path = write(tmp_path / "a.json", [slice_()])
    result = run("check", path, "--strict")
    assert (result.exit_code, result.stdout) == (0, "1 file checked: nothing found\n")


def test_findings_stand_by_file_and_code_and_those_of_all_at_the_end(tmp_path):
    first = write(tmp_path / "rank1.json", [*CROSSING, slice_(ts=20, tid="9")])
    second = write(tmp_path / "rank0.json", [slice_(tid=2)])
    result = run("check", tmp_path)
    assert result.exit_code == 3
    crossing = '"A" 3.000..6.000 us and "B" 5.000..8.000 us on pid 1 tid 1'
    string = '1 track has a string as pid or tid (1 event): pid 1 tid "9" (mended by --fix)'
    assert result.stdout.splitlines() == [
        f"{first}: SP101 error: 1 slice crosses another on a track: {crossing} (mended by --fix)",
        f"{first}: SP105 warning: {string}",
        "2 files together: SP504 warning: 1 process is in several files: pid 1 in 2 files (mended by merge)",
        "2 files checked: 1 error, 2 warnings; 2 can be mended by --fix",
    ]
    assert run("check", second, first).stdout == result.stdout


@pytest.mark.parametrize(
    ("event", "plain", "strict"),
    [(slice_(), 0, 0), (slice_(tid="x"), 0, 3), (slice_(dur=-1), 3, 3)],
)
def test_warnings_count_only_when_strict(tmp_path, event, plain, strict):
    path = write(tmp_path / "a.json", [event])
    assert run("check", path).exit_code == plain
    assert run("check", path, "--strict").exit_code == strict


def test_infos_count_when_strict(tmp_path):
    path = write(tmp_path / "a.json", [slice_()], baseTimeNanoseconds=None)
    assert [run("check", path, *more).exit_code for more in ([], ["--strict"])] == [0, 3]


def test_json_is_the_same_as_data(tmp_path):
    path = write(tmp_path / "a.json", CROSSING)
    (tmp_path / "notes.txt").write_text("no trace")
    result = run("check", tmp_path, "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 3
    assert told.keys() == {"files", "skipped", "findings"}
    assert told["files"] == [str(path)]
    assert list(told["skipped"]) == [str(tmp_path / "notes.txt")]
    assert told["findings"] == [
        {
            "file": str(path),
            "files": [str(path)],
            "code": "SP101",
            "title": "Slices cross on one track",
            "severity": "error",
            "count": 1,
            "message": "1 slice crosses another on a track",
            "example": '"A" 3.000..6.000 us and "B" 5.000..8.000 us on pid 1 tid 1',
            "mended_by": "fix",
        }
    ]


def test_file_that_is_named_has_to_be_a_trace(tmp_path):
    other = tmp_path / "notes.txt"
    other.write_text("no trace")
    result = run("check", other)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].startswith(f"{other}: SP401 error: no trace")
    good = write(tmp_path / "a.json", [slice_()])
    assert run("check", other, good).exit_code == 3
    found = run("check", tmp_path)
    assert found.exit_code == 0
    assert f"{other}: skipped: no trace" in found.stdout


def test_what_is_not_there_or_holds_nothing(tmp_path):
    result = run("check", tmp_path / "gone.json")
    assert result.exit_code == 1
    assert "SP414 error" in result.stdout
    (tmp_path / "empty").mkdir()
    result = run("check", tmp_path / "empty")
    assert (result.exit_code, result.stdout) == (1, "nothing could be read: no file was found\n")


def test_run_without_windows_says_what_it_is(tmp_path):
    made = write_synthetic_run(tmp_path)
    result = run("check", made.folder)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{made.folder}: skipped: {_check.NO_WINDOWS}",
        "nothing could be read",
    ]
    assert _check.NO_WINDOWS.startswith("a run without windows of torch.profiler")


def test_mended_files_beside_each_other_count_from_their_own_first_events(tmp_path):
    files = [write(tmp_path / f"rank{n}.json", [slice_(ts=5 + 0.5 * n, pid=n)]) for n in range(2)]
    assert run("check", *files, "--fix", "-o", tmp_path / "mended").exit_code == 0
    told = [line for line in run("check", tmp_path / "mended").stdout.splitlines() if "SP509" in line]
    assert len(told) == 1
    assert "2 different base times, up to 0.500 us apart; a mended or merged file counts" in told[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_that_may_not_be_read(tmp_path):
    path = write(tmp_path / "a.json", [slice_()])
    path.chmod(0)
    assert "SP414 error" in run("check", path).stdout


def test_usage(tmp_path):
    path = write(tmp_path / "a.json", [slice_()])
    assert run("check").exit_code == 2
    for wrong in (["--fix"], ["-o", tmp_path / "b.json"]):
        result = run("check", path, *wrong)
        assert (result.exit_code, "belong together" in result.stderr) == (2, True)


def test_each_file_once_however_it_is_named(tmp_path):
    path = write(tmp_path / "a.json", CROSSING)
    assert run("check", path, tmp_path, path).stdout.count("SP101") == 1


def test_merged_traces_are_looked_at_when_they_are_named(tmp_path):
    made = write_synthetic_run(tmp_path)
    assert run("merge", made.folder).exit_code == 0
    (merged,) = (made.folder / "merged").iterdir()
    assert run("check", merged).exit_code == 0
    assert run("check", made.folder / "merged").exit_code == 1  # no sources


def test_windows_of_a_run_are_looked_at(tmp_path):
    made = write_synthetic_run(tmp_path)
    folder = made.folder / "traces" / "rollout_000001"
    folder.mkdir(parents=True)
    window = folder / "actor-0.5.pt.trace.json.gz"
    window.write_bytes(gzip.compress(write(tmp_path / "a.json", CROSSING).read_bytes()))
    result = run("check", made.folder)
    assert f"{window}: SP101 error" in result.stdout
