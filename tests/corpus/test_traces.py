"""Files that real programs wrote: each merges into what Perfetto takes without loss, exact to 1 ns."""

from __future__ import annotations

import csv
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from corpus import TRACES, Merged, flow_pairs, merge, needs_shared
from merged_trace import ns
from reference import exact_slices, read_reference

pytestmark = [needs_shared, pytest.mark.timeout(300)]

SETS = (
    "param_dlrm_8rank",
    "own_gen/torch2141_gloo4_full",
    "own_gen/torch2141_gloo4_samepid",
    "own_gen/torch231_gloo4_full",
    "own_gen/torch231_gloo4_samepid",
    "sglang/tp2",
)
COUNTS = """
select (select count(*) from slice) as slices, (select count(*) from flow) as arrows,
  (select count(*) from counter) as counts
"""
SLICES = "select ts, dur, name from slice order by ts, dur, name"


def sources() -> list[Path]:
    """Every trace file, and each set of ranks as its folder."""
    files = [
        path
        for path in sorted(TRACES.rglob("*"))
        if path.suffix in {".json", ".gz", ".sqlite"} and not path.name.startswith("merged-")
    ]
    return files + [TRACES / name for name in SETS]


def label(path: Path) -> str:
    return str(path.relative_to(TRACES))


SOURCES = sources() if TRACES.is_dir() else []
FILES = [path for path in SOURCES if path.is_file()]


@pytest.fixture(scope="module")
def merged_of(tmp_path_factory):
    """Each source merged once, when a test asks for it."""

    @cache
    def merged(name: str) -> Merged:
        return merge(TRACES / name, tmp_path_factory.mktemp("merged"))

    return merged


@pytest.fixture(scope="module")
def answers(merged_of, perfetto):
    """What trace_processor says of every output."""
    labels = [label(path) for path in SOURCES]
    paths = [merged_of(name).path for name in labels]
    return dict(zip(labels, perfetto.query_each(paths, COUNTS), strict=True))


@pytest.mark.parametrize("name", list(map(label, SOURCES)))
def test_perfetto_shows_all_that_the_report_counts(name, merged_of, answers):
    merged, answer = merged_of(name), answers[name]
    assert not isinstance(answer, Exception), answer
    (shown,), errors = answer
    assert errors == []
    (output,) = merged.report["outputs"]
    counts = Counter(output["counts"])
    kinds = ("slices", "instants", "asynchronous slices")
    assert shown["slices"] == sum(counts[kind] for kind in kinds) + output["notes"]
    assert shown["arrows"] == counts["arrows"]
    assert shown["counts"] == counts["values of counters"]
    # The same from the file itself.
    assert shown["slices"] == len(merged.of_phase("XbiIRn"))
    assert shown["counts"] == sum(len(event["args"]) for event in merged.of_phase("C"))
    assert output["events"] + output["notes"] == sum(event["ph"] != "M" for event in merged.events)
    assert output["events"] == output["total"]["written"]


@pytest.mark.parametrize("name", list(map(label, FILES)))
def test_everything_is_read_and_times_are_exact(name, merged_of):
    reference = None if name.endswith(".sqlite") else read_reference(TRACES / name)
    if reference is None:
        pytest.skip("Python's parser cannot read it")
    merged = merged_of(name)
    assert merged.total["read"] == len(reference.events)
    (output,) = merged.report["outputs"]
    base = output["base_unix_ns"]
    if base is None:  # no wall clock: the earliest event stands at 0
        base = output["base_ns"]
    found = Counter((event["name"], base + ns(event["ts"]), ns(event["dur"])) for event in merged.slices)
    wanted = exact_slices(reference)
    assert wanted - found == Counter()
    # A B and its E are one slice; what has no readable length has length 0.
    more = (
        len(reference.timed("B")) + Counter(output["mended"])["slice without a length, written with length 0"]
    )
    assert sum((found - wanted).values()) <= more


#: Perfetto's own cases where this package reads otherwise, and why.
READ_OTHERWISE = {
    "test_invalid_string_ts_and_dur": "a slice whose length is no number stays, with length 0",
    "test_json_all_slice_types": "an end closes the slice that is open, whatever its name, as in Chrome",
    "test_json_extreme_vals": "the same, and a slice without a length stays, with length 0",
    "test_json_flow": "as test_json_all_slice_types",
    "test_json_async": "an empty id is an id, and so is an absent category",
    "test_json_id2": "an id2 without a scope is an id",
    "test_string_ts_trailing_chars": "a slice whose length is no number stays, with length 0",
}


def cases():
    """(case, the slices that Perfetto's table has), for cases whose table is one of slices."""
    for path in sorted((TRACES / "perfetto_cases").glob("*.csv")):
        rows = list(csv.DictReader(path.open()))
        if rows and {"ts", "dur", "name"} <= set(rows[0]):
            yield path.name.partition(".")[0], rows


CASES = dict(cases()) if TRACES.is_dir() else {}


@pytest.fixture(scope="module")
def slices_of_cases(merged_of, perfetto):
    """What trace_processor shows of each output."""
    paths = [merged_of(f"perfetto_cases/{case}.json").path for case in CASES]
    return dict(zip(CASES, perfetto.query_each(paths, SLICES), strict=True))


@pytest.mark.parametrize("case", sorted(set(CASES) - set(READ_OTHERWISE)))
def test_slices_of_perfettos_own_cases(case, slices_of_cases):
    expected = sorted({(int(row["ts"]), int(row["dur"]), row["name"]) for row in CASES[case]})
    slices, _ = slices_of_cases[case]
    first = expected[0][0]
    found = [(row["ts"], row["dur"], row["name"]) for row in slices]
    assert sorted(found) == [(start - first, length, name) for start, length, name in expected]


def test_own_ranks_of_one_pid_keep_apart(merged_of):
    for version in ("torch2141", "torch231"):
        merged = merged_of(f"own_gen/{version}_gloo4_samepid")
        of_rank = Counter(rank_of(merged, e) for e in merged.slices if e["name"] == "gloo:all_reduce")
        assert set(of_rank) == set("0123")
        assert len(set(of_rank.values())) == 1
        assert merged.exit_code == 0


def test_arrows_of_eight_ranks_are_those_of_each(merged_of):
    merged = merged_of("param_dlrm_8rank")
    pairs = flow_pairs(merged)
    assert all(rank_of(merged, start) == rank_of(merged, end) for start, end in pairs[::40])
    alone = [merged_of(label(path)) for path in FILES if path.parent.name == "param_dlrm_8rank"]
    assert len(alone) == 8
    assert len(pairs) == sum(len(flow_pairs(one)) for one in alone)
    assert {e["pid"] for e in merged.slices if e.get("cat") == "Kernel"} <= {e["pid"] for e in merged.slices}


def test_engines_and_their_trainer_come_without_sglangs_own_merge(merged_of):
    merged = merged_of("sglang/tp2")
    alone = [merged_of(label(path)) for path in FILES if path.parent.name == "tp2"]
    assert len(merged.slices) == sum(len(one.slices) for one in alone)
    one_of_each = {event["pid"]: event for event in merged.slices}
    processes = " | ".join(map(merged.process_of, one_of_each.values()))
    for rank in (0, 1):
        assert re.search(rf"engine[^|]*\btp{rank}\b", processes)
    assert "merged-run1" in merged.said()


def rank_of(merged, event):
    return re.search(r"\brank (\d+)", merged.process_of(event))[1]
