"""--fix: what it writes, where, and that nothing is left of what it mends."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from hypothesis import given, settings
from hypothesis import strategies as st
from small_traces import BASE_NS, event, flow, named, slice_, write

from slime_profiler_plugin.check import check_paths, fix_files
from slime_profiler_plugin.read import discover

CROSSING = [slice_("A", 3, 3.776), slice_("B", 5, 2)]


def events_of(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    content = gzip.decompress(content) if path.name.endswith(".gz") else content
    return [each for each in json.loads(content)["traceEvents"] if each["ph"] != "M"]


def test_mended_file_and_what_is_said(tmp_path):
    path = write(tmp_path / "rank3.json", [*CROSSING, slice_(ph=None), slice_(ts=20, tid="7")])
    out = tmp_path / "mended.json.gz"
    result = run("check", path, "--fix", "-o", out)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-3:] == [
        f"{path}: mended SP101 (1), SP105 (1), SP411 (1); 3 events written to {out}",
        "    1 mended: row added for slices that cross those of another",
        "    1 dropped: event without a phase letter",
    ]
    assert sorted((each["name"], each["dur"]) for each in events_of(out)) == [
        ("A", 3.776),
        ("B", 2),
        ("op", 1),
    ]
    assert run("check", out, "--strict").stdout == "1 file checked: nothing found\n"


def test_input_stays_and_is_never_written_over(tmp_path):
    path = write(tmp_path / "rank3.json", CROSSING)
    before = path.read_bytes()
    for out in (path, tmp_path, tmp_path / "." / "rank3.json"):
        result = run("check", path, "--fix", "-o", out)
        assert result.exit_code == 2
        assert "would write over" in result.stderr
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_link_to_an_input_is_that_input(tmp_path):
    path = write(tmp_path / "rank3.json", CROSSING)
    (tmp_path / "link.json").symlink_to(path)
    assert run("check", path, "--fix", "-o", tmp_path / "link.json").exit_code == 2


def test_folder_of_files_keeps_their_names(tmp_path):
    source, out = tmp_path / "in", tmp_path / "out"
    (source / "a").mkdir(parents=True)
    write(source / "a" / "rank0.json", CROSSING)
    packed = gzip.compress(write(tmp_path / "x.json", CROSSING).read_bytes())
    (source / "rank1.pt.trace.json.gz").write_bytes(packed)
    assert run("check", source, "--fix", "-o", out).exit_code == 0
    written = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert written == ["a/rank0.json", "rank1.pt.trace.json.gz"]
    assert run("check", out).exit_code == 0


def test_names_that_would_be_one(tmp_path):
    paths = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        paths.append(write(tmp_path / name / "rank0.json", CROSSING))
    result = run("check", *paths, "--fix", "-o", tmp_path / "out")
    assert (result.exit_code, "would both be" in result.stderr) == (2, True)
    assert not (tmp_path / "out").exists()


def test_several_files_into_one(tmp_path):
    paths = [write(tmp_path / f"{n}.json", CROSSING) for n in range(2)]
    result = run("check", *paths, "--fix", "-o", tmp_path / "one.json")
    assert (result.exit_code, "a folder is needed" in result.stderr) == (2, True)


def test_out_that_is_a_file_without_the_right_name(tmp_path):
    path = write(tmp_path / "a.json", CROSSING)
    (tmp_path / "out").write_text("")
    assert run("check", path, "--fix", "-o", tmp_path / "out").exit_code == 2


def test_what_cannot_be_mended_is_named(tmp_path):
    good = write(tmp_path / "a.json", CROSSING)
    merged = write(tmp_path / "b.json", [slice_(pid=2, dur=-1)], slime_profiler_merge={"version": 1})
    other = tmp_path / "c.json"
    other.write_text('{"no": "trace"}')
    result = run("check", good, merged, other, "--fix", "-o", tmp_path / "out")
    assert result.exit_code == 3
    assert f"{merged}: not mended: nothing to merge; {merged}: refused: a merged timeline" in result.stdout
    assert f"{other}: SP401 error" in result.stdout
    assert result.stdout.splitlines()[-1] == "not mended: SP204 (1), SP401 (1)"
    assert run("check", merged, "--fix", "-o", tmp_path / "d.json").exit_code == 1
    assert not (tmp_path / "d.json").exists()


def test_empty_trace_stays_empty(tmp_path):
    path = write(tmp_path / "a.json", [named("process_name", "x")])
    assert run("check", path, "--fix", "-o", tmp_path / "b.json").exit_code == 0
    assert [finding.code for finding in check_paths([tmp_path / "b.json"]).findings] == ["SP404"]


def test_errors_that_nothing_mends_are_left(tmp_path):
    outside = [slice_("A", 0, 9), slice_("B", 0, 90, tid=2), flow("s", 20), flow("f", 30, tid=2)]
    path = write(tmp_path / "a.json", outside)
    result = run("check", path, "--fix", "-o", tmp_path / "b.json")
    assert result.exit_code == 3
    assert result.stdout.splitlines()[-1] == "not mended: SP305 (1)"


def test_json_holds_what_was_done(tmp_path):
    path = write(tmp_path / "a.json", [*CROSSING, event("B", 20), event("E", 25), event("B", 30), {}])
    told = json.loads(run("check", path, "--fix", "-o", tmp_path / "b.json", "--json").stdout)["fixed"]
    (output,) = told["outputs"]
    assert output["codes"] == {"SP101": 1, "SP102": 1, "SP411": 1}
    assert (output["events"], output["joined"]) == (4, 1)
    assert output["dropped"] == {"event without a phase letter": 1}
    assert (told["refused"], told["left"]) == ({}, {})


def test_a_mended_file_is_a_trace_of_the_same_rank(tmp_path):
    path = write(tmp_path / "any.json", CROSSING, distributedInfo={"rank": 5, "world_size": 8})
    out = tmp_path / "mended.json"
    assert run("check", path, "--fix", "-o", out).exit_code == 0
    (trace,) = discover([out]).traces
    assert (trace.owner.rank, trace.owner.world_size) == (5, 8)
    assert trace.header.base_ns == BASE_NS + 3000
    assert run("merge", out, "-o", tmp_path / "merged.json").exit_code == 0
    assert run("check", out, "--fix", "-o", tmp_path / "again.json").exit_code == 0
    assert len(events_of(tmp_path / "again.json")) == 2


def test_a_mended_window_of_ours_stays_one(tmp_path):
    told = {"run_id": "r", "role": "actor", "rank": 1, "clock_pairs": [[5, BASE_NS, 10]]}
    path = write(tmp_path / "a.json", CROSSING, slime_profiler=told, slime_profiler_rollouts=[3])
    assert run("check", path, "--fix", "-o", tmp_path / "b.json").exit_code == 0
    (before,), (after,) = discover([path]).traces, discover([tmp_path / "b.json"]).traces
    assert after.format == before.format == "ours"
    assert after.header[:2] == before.header[:2] == ({"run_id": "r", "role": "actor", "rank": 1}, [3])
    assert after.header.clock_pairs == before.header.clock_pairs != []


def test_times_stay_to_the_nanosecond(tmp_path):
    lines = [
        f'{{"ph":"X","name":"{n}","pid":1,"tid":1,"ts":51097255820{n:02d}.{n:03d},"dur":0.{n + 1:03d}}}'
        for n in range(40)
    ]
    path = tmp_path / "a.json"
    path.write_text(f'{{"baseTimeNanoseconds": {BASE_NS}, "traceEvents": [{",".join(lines)},{{}}]}}')
    assert run("check", path, "--fix", "-o", tmp_path / "b.json").exit_code == 0
    content = json.loads((tmp_path / "b.json").read_text())
    base = content["baseTimeNanoseconds"] - BASE_NS
    written = {
        int(each["name"]): (base + round(each["ts"] * 1000), round(each["dur"] * 1000))
        for each in content["traceEvents"]
        if each["ph"] == "X"
    }
    assert written == {n: (5_109_725_582_000_000 + 1001 * n, n + 1) for n in range(40)}


PIDS = st.sampled_from([0, 1, 7, "7", "", "Spans", -3, 2**33, None])
TIMES = st.sampled_from([0, 1, 2.5, 3, 4.125, 5, 7, 9, -1, "6", "x", None, 2**70])
IDS = st.sampled_from([0, 1, 2, "1", "id", 1.5, -1, 2**63, None])
NAMES = st.sampled_from(["a", "b\x01", "c\n", "d\\", "é\ud800", 'e"', ""])
EVENTS = st.fixed_dictionaries(
    {
        "ph": st.sampled_from(
            ["X", "X", "X", "B", "E", "s", "t", "f", "b", "e", "n", "i", "C", "M", "", "S", "F"]
        )
    },
    optional={
        "name": NAMES,
        "cat": st.sampled_from(["kernel", "cuda_runtime", "user_annotation", "req"]),
        "pid": PIDS,
        "tid": PIDS,
        "ts": TIMES,
        "dur": TIMES,
        "id": IDS,
        "id2": st.sampled_from([{"local": 1}, {"global": "x"}]),
        "bp": st.just("e"),
        "args": st.dictionaries(
            st.sampled_from(["x", "name", "correlation"]),
            st.sampled_from([1, "t\\", float("nan"), float("inf")]),
        ),
    },
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(EVENTS, max_size=25),
    st.sampled_from([BASE_NS, None]),
    st.sampled_from([", ", ",", ",\n", ",\n  "]),
    st.sampled_from(["", ",", "cut"]),
)
def test_nothing_is_left_of_what_is_mended(events, base, between, end):
    """Over random events, layouts of the text and ends of the file."""
    text = "[" + between.join(json.dumps(each, ensure_ascii=False) for each in events)
    head = "{" if base is None else f'{{"baseTimeNanoseconds": {base}, '
    text = f'{head}"traceEvents": {text}'
    text = text[:-1] if end == "cut" else f"{text}{end if events else ''}]}}"
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "a.json"), Path(folder, "b.json")
        path.write_bytes(
            text.encode("utf-8", "surrogatepass").replace(b"\\n", b"\n").replace(b"\\u0001", b"\x01")
        )
        report = check_paths([path])
        if not report.files:
            return
        fixed = fix_files(report, [path], out)
        if fixed.refused:
            assert not out.exists()
            return
        again = check_paths([out])
        assert again.files
        assert [f for f in again.findings if f.mended_by == "fix"] == []
        (written,) = fixed.outputs
        assert len(events_of(out)) == written.events


@pytest.mark.parametrize("packed", [False, True])
def test_both_forms_are_written(tmp_path, packed):
    path = write(tmp_path / "a.json", CROSSING)
    out = tmp_path / ("b.json.gz" if packed else "b.json")
    assert run("check", path, "--fix", "-o", out).exit_code == 0
    assert out.read_bytes().startswith(b"\x1f\x8b") == packed
