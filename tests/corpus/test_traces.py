"""Files that real programs wrote: each merges into what Perfetto takes without loss, exact to 1 ns."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from corpus import TRACES, Merged, flow_pairs, merge, needs_shared
from merged_trace import ns
from reference import exact_slices, read_reference

pytestmark = [needs_shared, pytest.mark.timeout(300)]

SETS = {
    "param_dlrm_8rank": "*.json.gz",
    "own_gen/torch2141_gloo4_full": "*.json.gz",
    "own_gen/torch2141_gloo4_samepid": "*.json.gz",
    "own_gen/torch231_gloo4_full": "*.json.gz",
    "own_gen/torch231_gloo4_samepid": "*.json.gz",
    "sglang/tp2": "*.json.gz",
}
SLICE = "XBbiIRn"
COUNTS = """
select (select count(*) from slice) as slices, (select count(*) from flow) as arrows,
  (select count(*) from counter) as counts
"""


def sources() -> list[Path]:
    """Every trace file, and each set of ranks as its folder."""
    files = [
        path
        for path in sorted(TRACES.rglob("*"))
        if path.is_file()
        and path.suffix not in {".csv", ".tsv", ".md"}
        and not path.name.startswith("merged-")
    ]
    return [*files, *(TRACES / folder for folder in SETS)]


SOURCES = sources() if TRACES.is_dir() else []


def label(path: Path) -> str:
    return str(path.relative_to(TRACES))


@pytest.fixture(scope="module")
def merged_files(tmp_path_factory) -> dict[str, Merged]:
    """Each source merged once."""
    found = {}
    for source in SOURCES:
        found[label(source)] = merge(source, tmp_path_factory.mktemp("merged"))
    return found


@pytest.fixture(scope="module")
def answers(merged_files, perfetto):
    """What trace_processor says of each output."""
    paths = [merged.path for merged in merged_files.values()]
    return dict(zip(merged_files, perfetto.query_each(paths, COUNTS), strict=True))


@pytest.mark.parametrize("source", SOURCES, ids=label)
def test_perfetto_shows_all_that_the_report_counts(source, merged_files, answers):
    merged, answer = merged_files[label(source)], answers[label(source)]
    assert not isinstance(answer, Exception), answer
    (counts,), errors = answer
    assert errors == []
    assert counts["slices"] == len(merged.of_phase(SLICE))
    assert counts["arrows"] == len(flow_pairs(merged)) + len(merged.of_phase("t"))
    assert counts["counts"] == sum(len(event["args"]) for event in merged.of_phase("C"))
    (output,) = merged.report["outputs"]
    assert output["arrows"] == counts["arrows"]
    assert output["events"] + output["notes"] == sum(event["ph"] != "M" for event in merged.events)


@pytest.mark.parametrize("source", [path for path in SOURCES if path.is_file()], ids=label)
def test_everything_is_read_and_times_are_exact(source, merged_files):
    reference = read_reference(source) if source.suffix != ".sqlite" else None
    if reference is None:
        pytest.skip("Python's parser cannot read it")
    merged = merged_files[label(source)]
    assert merged.total["read"] == len(reference.events)
    (output,) = merged.report["outputs"]
    wanted = exact_slices(reference)
    base = output["base_unix_ns"]
    if base is None:
        base = min((start for _, start, _ in wanted), default=0) - min(
            (ns(e["ts"]) for e in merged.slices), default=0
        )
    found = Counter((event["name"], base + ns(event["ts"]), ns(event["dur"])) for event in merged.slices)
    assert wanted - found == Counter()
    if not reference.timed("BE"):
        assert sum((found - wanted).values()) == output["notes"]


def test_own_ranks_of_one_pid_keep_apart(merged_files):
    for version in ("torch2141", "torch231"):
        merged = merged_files[f"own_gen/{version}_gloo4_samepid"]
        of_rank = Counter(
            re.search(r"rank (\d)", merged.process_of(event))[1]
            for event in merged.slices
            if event["name"] == "gloo:all_reduce"
        )
        assert set(of_rank) == set("0123")
        assert len(set(of_rank.values())) == 1
        assert merged.exit_code == 0


def test_eight_ranks_share_no_arrow(merged_files):
    merged = merged_files["param_dlrm_8rank"]
    ranks = [
        [re.search(r"rank (\d)", merged.process_of(end))[1] for end in pair]
        for pair in flow_pairs(merged)[::50]
    ]
    assert all(start == end for start, end in ranks)
    alone = sum(
        len(flow_pairs(merged_files[label(path)])) for path in sorted((TRACES / "param_dlrm_8rank").iterdir())
    )
    assert len(flow_pairs(merged)) == alone


def test_engines_and_their_trainer_are_three_without_sglangs_own_merge(merged_files):
    merged = merged_files["sglang/tp2"]
    processes = {merged.process_of(event) for event in merged.slices}
    for rank in ("0", "1"):
        assert any(re.search(rf"(tp ?|rank ){rank}\b", process) for process in processes)
    alone = sum(
        len(merged_files[label(path)].slices)
        for path in sorted((TRACES / "sglang/tp2").iterdir())
        if not path.name.startswith("merged-")
    )
    notes = [merged_files["sglang/tp2"].report["outputs"][0]["notes"]]
    assert len(merged.slices) >= alone - sum(notes)
    assert "merged-run1" in merged.said()
