"""Which trace `open` shows."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from slime_profiler_plugin.layout import parse_merged_name, range_name, rollout_name
from slime_profiler_plugin.merge import MergeError, merge_run
from slime_profiler_plugin.read import FolderOfRunsError, ReadError
from slime_profiler_plugin.serve import OpenError, choose_trace
from slime_profiler_plugin.testing import write_synthetic_run

TRACE = b'{"traceEvents":[]}'


#: More than is looked at of a file that is shown.
EVENTS = b'{"traceEvents": [' + b'{"ph": "X", "name": "a", "ts": 1, "dur": 1}, ' * 3000 + b'{"ph": "i"}]}'


def nothing(line: str) -> None:
    raise AssertionError(f"there was nothing to tell: {line}")


def chosen(target: Path) -> str:
    return choose_trace(target, nothing).trace.name


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", TRACE),
        ("a.json", b'\n [{"ph":"X"}]'),
        ("a.json.gz", gzip.compress(TRACE)),
        ("a.json", gzip.compress(TRACE)),
        ("worker-0.17.pt.trace.json.gz", gzip.compress(b'{"x":[' + b"1," * 100_000 + b"1]," + TRACE[1:])),
    ],
)
def test_trace_file_is_shown_as_it_is(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert choose_trace(path, nothing) == (path, False)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.json", b"", "it is empty"),
        ("a.json", b" \n", "it is empty"),
        ("a.json", b"hello", "it does not begin as JSON does"),
        # What the UI refuses: better told here.
        ("a.json", b"\xef\xbb\xbf" + TRACE, "it does not begin as JSON does"),
        ("a.json", b" [ ] ", "it has no events"),
        (
            "cut.json.gz",
            gzip.compress(b'{"traceEvents":[' + os.urandom(99_999).hex().encode())[:50_000],
            "no trace: the gzip stream has no end",
        ),
        ("a.json.gz", b"PK\3\4 a zip", "a zip archive"),
        ("run.json", b'{"run_id":"x"}', "it has no traceEvents"),
        ("a.txt", TRACE, "its name ends in neither .json nor .json.gz"),
        ("a.pftrace", TRACE, "its name ends in neither .json nor .json.gz"),
    ],
)
def test_look_alike_is_refused_by_name_with_the_reason(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises((OpenError, ReadError)) as error:
        choose_trace(path, nothing)
    assert str(path) in str(error.value)
    assert reason in str(error.value)


def test_what_is_not_there_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OpenError, match=r"a\.json: no such file or folder"):
        choose_trace(tmp_path / "a.json", nothing)
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(OpenError, match="not a regular file"):
        choose_trace(tmp_path / "pipe.json", nothing)
    (tmp_path / "dangling.json").symlink_to(tmp_path / "nothing")
    with pytest.raises(OpenError, match="not a regular file"):
        choose_trace(tmp_path / "dangling.json", nothing)
    with pytest.raises(OpenError, match=r"is no run folder.*`slime-profiler merge` makes one trace"):
        choose_trace(tmp_path, nothing)


@pytest.mark.parametrize(
    ("name", "content", "is_cut"),
    [
        ("a.json", EVENTS, False),
        ("a.json", EVENTS[:-3], True),
        ("a.json", EVENTS + b"\n", False),
        ("a.json", b'[{"ph": "X", "ts": 1},', False),
        ("a.json.gz", gzip.compress(EVENTS), False),
        ("a.json.gz", gzip.compress(EVENTS)[:-20], True),
        ("a.json.gz", gzip.compress(EVENTS[:-3]), True),
    ],
)
def test_a_cut_trace_is_shown_and_check_is_pointed_to(
    tmp_path: Path, name: str, content: bytes, is_cut: bool
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    told: list[str] = []
    assert choose_trace(path, told.append).trace == path
    assert told == (
        [f"{path}: its end is missing, and the viewer may refuse it: `slime-profiler check --fix` mends it"]
        if is_cut
        else []
    )


def test_folder_of_runs_is_none(tmp_path: Path) -> None:
    runs = [write_synthetic_run(tmp_path, run_id=name).folder for name in ("a", "b")]
    with pytest.raises(FolderOfRunsError) as error:
        choose_trace(tmp_path, nothing)
    assert error.value.runs == runs


def test_run_without_a_merged_file_is_merged_first_and_that_is_said(tmp_path: Path) -> None:
    made = write_synthetic_run(tmp_path)
    told: list[str] = []
    found = choose_trace(made.folder, told.append)
    assert found == (made.folder / "merged" / "rollout_000001.trace.json.gz", False)
    assert told[0] == f"{made.folder}: nothing is merged yet; merging the latest complete rollout"
    assert told[1] == "run synthetic, attempt 0"
    assert choose_trace(made.folder, nothing) == found


def test_run_that_cannot_be_merged_says_why(tmp_path: Path) -> None:
    (tmp_path / "r" / "records").mkdir(parents=True)
    with pytest.raises(MergeError, match="no record names a rollout"):
        choose_trace(tmp_path / "r", [].append)


@pytest.mark.parametrize(
    ("names", "last"),
    [
        (["initial", "rollout_000000"], "rollout_000000"),
        (["initial"], "initial"),
        (["rollout_000002", "rollout_000010"], "rollout_000010"),
        (["rollout_999999", "rollout_1000000"], "rollout_1000000"),
        (["rollout_000003-000004", "rollout_000004"], "rollout_000004"),
        (["rollout_000000-000004", "rollout_000003"], "rollout_000000-000004"),
        (["rollout_000000-000004", "rollout_000003-000004"], "rollout_000003-000004"),
        (["rollout_000004", "eval"], "eval"),
    ],
)
def test_last_by_the_order_of_rollouts_not_of_time(tmp_path: Path, names: list[str], last: str) -> None:
    made = write_synthetic_run(tmp_path)
    merged = made.folder / "merged"
    merged.mkdir()
    for name in [*sorted(names, key=lambda name: name != last), ".new.trace.json.gz.7.tmp", "notes.txt"]:
        path = merged / (name if "." in name else f"{name}.trace.json.gz")
        path.write_bytes(gzip.compress(TRACE))
    (merged / "rollout_9999999.trace.json.gz").mkdir()
    assert chosen(made.folder) == f"{last}.trace.json.gz"


def test_records_that_are_newer_are_noticed(tmp_path: Path) -> None:
    made = write_synthetic_run(tmp_path)
    path = Path(merge_run([made.folder]).outputs[0].path)
    written = path.stat().st_mtime_ns
    records = sorted(made.folder.glob("records/*/*"))
    for record in records:
        os.utime(record, ns=(written - 1, written - 1))
    assert not choose_trace(made.folder, nothing).outdated
    os.utime(records[2], ns=(written + 1, written + 1))
    assert choose_trace(made.folder, nothing).outdated
    os.utime(records[2], ns=(written, written))
    window = made.folder / "traces" / "rollout_000001" / "actor-0.17.pt.trace.json.gz"
    window.parent.mkdir(parents=True)
    window.write_bytes(b"")
    os.utime(window, ns=(written + 1, written + 1))
    assert choose_trace(made.folder, nothing).outdated
    assert not choose_trace(path, nothing).outdated


@pytest.mark.parametrize(
    "name", ["rollout_000003.json.gz", ".trace.json.gz", "x.trace.json.gz.tmp", "run.json", ""]
)
def test_names_that_no_merged_file_has(name: str) -> None:
    assert parse_merged_name(name) is None


def test_names_of_merged_files_are_read_back() -> None:
    for first, last in ((3, 4), (0, 1_234_567)):
        assert parse_merged_name(f"{range_name(first, last)}.trace.json.gz") == (first, last)
    for rollout in (0, 41, 1_234_567, "initial"):
        assert parse_merged_name(f"{rollout_name(rollout)}.trace.json.gz") == (rollout, rollout)
    assert parse_merged_name("eval_1.trace.json.gz") == ("eval_1", "eval_1")
