"""Files that cannot take part: only they are left out, and the report says so."""

import command_line
import pytest
from reading import Merged
from traces import BASE_US, merge, names, op, write_trace

from slime_profiler_plugin.merge import MergeError, MergeOptions, _survey, format_report, merge_run
from slime_profiler_plugin.read import discover
from slime_profiler_plugin.testing import write_synthetic_run


@pytest.fixture
def bomb(monkeypatch):
    """A file of this name does not fit into memory."""
    survey = _survey._survey

    def run_out(task, advance):
        if task.trace.path.name.startswith("bomb"):
            raise MemoryError
        return survey(task, advance)

    monkeypatch.setattr(_survey, "_survey", run_out)


@pytest.mark.usefixtures("bomb")
def test_a_trace_that_does_not_fit_into_memory_is_refused_alone(tmp_path):
    paths = [write_trace(tmp_path / f"{name}.json", [op(name, 10, 5)]) for name in ("bomb", "rank1")]
    report, merged = merge(paths, tmp_path / "out" / "o.json")
    assert names(merged) == ["rank1"]
    assert [(d.file, d.kind, d.reason) for d in report.damage] == [
        (str(paths[0]), "refused", "has more events than fit into memory")
    ]
    assert report.exit_code() == 3
    assert [each.file for each in report.inputs] == [str(paths[1])]
    with pytest.raises(MergeError, match=r"bomb\.json: refused: has more events than fit into memory"):
        merge(paths[:1], tmp_path / "out" / "p.json")


@pytest.mark.usefixtures("bomb")
def test_the_same_beside_a_run(tmp_path):
    made = write_synthetic_run(tmp_path / "runs")
    found = discover([write_trace(tmp_path / "bomb.json", [op("bomb", 10, 5)])])
    report = merge_run([made.folder], options=MergeOptions(jobs=1), extras=found.traces)
    assert report.outputs[0].events == 36
    assert [d.reason for d in report.damage] == ["has more events than fit into memory"]
    assert report.inputs == []


def test_mended_copies_do_not_count_beside_what_they_are_of(tmp_path):
    folder = tmp_path / "traces"
    for rank in range(2):
        write_trace(folder / f"rank{rank}.json", [op(f"op{rank}", 10, 5), op("cross", 12, 9)])
    assert command_line.run("check", folder, "--fix", "-o", folder / "mended").exit_code == 0
    report, merged = merge([folder], tmp_path / "out.json")
    assert sorted(names(merged)) == ["cross", "cross", "op0", "op1"]
    assert report.ignored == [
        f"{folder / 'mended' / f'rank{rank}.json'} (a mended copy of rank{rank}.json, which is here itself)"
        for rank in range(2)
    ]
    assert report.exit_code() == 0
    (folder / "rank0.json").unlink()  # then the copy is all there is
    _, merged = merge([folder], tmp_path / "out.json")
    assert sorted(names(merged)) == ["cross", "cross", "op0", "op1"]


def test_repairs_and_added_rows_are_told(tmp_path):
    path = tmp_path / "rank0.json"
    events = [
        f'{{"ph":"X","pid":1,"tid":1,"name":"{n}","ts":{BASE_US + at},"dur":10}}'
        for n, at in (("a", 0), ("b\t\n", 5), ("c\x01", 50))
    ]
    path.write_text('{"traceEvents":[' + ",".join(events) + "]}")
    report, merged = merge([path], tmp_path / "out.json")
    assert names(merged) == ["a", "b\t\n", "c\x01"]
    told = list(format_report(report))
    what = "raw control characters, NaN, commas before a bracket"
    first = 16 + len(events[0]) + 1
    assert f"  repaired: {path}: 2 events are no strict JSON ({what}), the first at byte {first}" in told
    assert "    1 mended: row added for slices that cross those of another" in told
    assert report.exit_code() == 0
    assert len(Merged(tmp_path / "out.json").events) == 3
