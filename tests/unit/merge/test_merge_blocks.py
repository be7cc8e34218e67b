"""Only the blocks that may hold something of an output are decoded again, and nothing gets lost by it."""

import gzip

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading import Merged

from slime_profiler_plugin import schema
from slime_profiler_plugin.merge import merge_run
from slime_profiler_plugin.read import _files, read_run
from slime_profiler_plugin.testing import ProcessFile, write_synthetic_run


def write_late_brackets(folder, order):
    """Phases of three rollouts and of none, brackets in any `order` behind them, one without a phase."""
    process = ProcessFile("r", pid=1, role="actor", rank=0)
    ids = []
    for rollout in (0, 1, 2):
        for number in range(6):
            at = 1000 + rollout * 10_000 + number * 100
            ids.append(process.phase("train_step", at, at + 90, rollout=rollout))
    process.phase("decode", 9_000, 11_050)
    process.lines.append(schema.Drop(at_ns=11_100, what="phase", reason="full", count=2))
    fields = {"device_type": "cuda", "device_index": 0, "stream": 7, "uncertainty_ns": 1, "dur_ns": 10}
    brackets = [
        schema.Device(id=i, start_ns=1005 + (n // 6) * 10_000 + n % 6 * 100, **fields)
        for n, i in enumerate(ids)
    ]
    brackets.append(schema.Device(id=500, start_ns=21_010, **fields))
    process.lines += [brackets[i] for i in order]
    process.end(30_000)
    return process.write(folder)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(order=st.permutations(range(19)), size=st.sampled_from([64, 300, 1000]), packed=st.booleans())
def test_outputs_are_the_same_whatever_the_size_of_blocks(tmp_path, monkeypatch, order, size, packed):
    path = write_late_brackets(tmp_path, order)
    if packed:
        rotated = path.with_name(path.name.replace(".jsonl", ".000.jsonl.gz"))
        rotated.write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    monkeypatch.undo()
    whole = [Merged(output.path).events for output in merge_run([tmp_path / "r"], "all").outputs]
    monkeypatch.setattr(_files, "_BLOCK", size)
    report = merge_run([tmp_path / "r"], "all")
    assert [Merged(output.path).events for output in report.outputs] == whole
    assert [len(events) for events in whole] == [12, 12 + 2, 12 + 1]
    if packed:
        rotated.unlink()


def test_other_rollouts_blocks_are_not_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "_BLOCK", 2000)
    made = write_synthetic_run(tmp_path, rollouts=30)
    records = next(r for r in read_run([made.folder]).processes if r.process.pid == 200)
    last = [b for b in records.blocks if any(key.rollout == 29 for key in b.keys)]
    assert 0 < len(last) < len(records.blocks) / 5
    lines = list(records.items(lambda block: block in last))
    assert len(lines) == sum(block.lines for block in last)
    phases = [item.line for item in lines if isinstance(item.line, schema.Phase)]
    assert {p.id for p in phases if p.rollout == 29} == {p.id for p in records.phases() if p.rollout == 29}


@pytest.mark.parametrize("size", [100, 5000])
def test_conservation_holds_over_blocks_that_were_skipped(tmp_path, monkeypatch, size):
    monkeypatch.setattr(_files, "_BLOCK", size)
    made = write_synthetic_run(tmp_path, rollouts=10)
    path = next(made.folder.glob("records/*/100-*.jsonl"))
    path.write_bytes(path.read_bytes() + b'{"kind":"weather","sun":true}\n')
    report = merge_run([made.folder], "all")
    lines = sum(len(process.lines) for process in made.processes) + 1
    for output in report.outputs:
        assert output.total.read == lines
        assert dict(output.total.dropped) == {"kind weather is not known": 1}
    phases = sum(isinstance(x, schema.Phase) for p in made.processes for x in p.lines)
    assert sum(output.total.written for output in report.outputs) == phases
