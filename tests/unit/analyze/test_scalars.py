"""Scalars in event files, read back by TensorBoard's own loader."""

from __future__ import annotations

import os

import pytest
from command_line import run as call
from planted_run import BUCKET_BYTES, LONG, MS, ROLLOUTS, TURN_MS, write_planted_run

pytest.importorskip("duckdb")
pytest.importorskip("tensorboard", exc_type=ImportError)

from slime_profiler_plugin.analyze import EventFileError, RunTables, write_scalars
from slime_profiler_plugin.testing import ProcessFile

#: Of `write_planted_run`.
EPOCH_S = 1_795_000_000


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def write(tmp_path):
    def write(run):
        with RunTables(run) as tables:
            return write_scalars(run, tables, tmp_path / "logs")

    return write


def read(path):
    """{tag: {step: value}} as TensorBoard has them once all is loaded."""
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

    loaded = EventAccumulator(str(path.parent))
    loaded.Reload()
    values = {
        tag: {e.step: e.tensor_proto.float_val[0] for e in loaded.Tensors(tag)}
        for tag in loaded.Tags()["tensors"]
    }
    return values, loaded


def turns(out, rollouts, *, attempt=0, first=0, ended=False, step_ms=100, pid=3):
    """A trainer that did `rollouts` from `first` on; each takes `step_ms` longer than the one before."""
    process = ProcessFile("grown", pid=pid, role="actor", rank=0, attempt=attempt)
    for number in range(first, first + rollouts):
        at = number * TURN_MS * MS
        process.phase("train_step", at, at + (number + 1) * step_ms * MS, rollout=number)
    if ended:
        process.end((first + rollouts) * TURN_MS * MS)
    return process.write(out).parents[2]


def test_every_rollout_is_a_step_with_what_was_planted(tmp_path, write):
    written = write(write_planted_run(tmp_path / "runs"))
    assert written.path.parent == tmp_path / "logs" / "planted"
    assert written.rollouts == ROLLOUTS
    values, loaded = read(written.path)
    assert sum(map(len, values.values())) == written.added
    assert values["rollout/wall_ms"] == {r: 1900 if r == LONG else 900 for r in range(ROLLOUTS)}
    assert values["rollout/overlap_ms"] == {r: 60 * (r % 2) for r in range(ROLLOUTS)}
    assert values["sync/exposed_ms"] == {r: 100 - 60 * (r % 2) for r in range(ROLLOUTS)}
    assert values["sync/send_ms"] == dict.fromkeys(range(ROLLOUTS), 40)
    assert values["sync/bytes"] == dict.fromkeys(range(ROLLOUTS), 2 * BUCKET_BYTES)
    assert values["sync/gb_s"] == dict.fromkeys(range(ROLLOUTS), 1)
    # 200 ms over the median of 100, 100, 200 and 100; at last 400 over that of 100, 100, 200 and 400.
    slowest = {r: 400 / 150 if r == ROLLOUTS - 1 else 2 for r in range(ROLLOUTS)}
    assert values["slowest_rank/backward"] == pytest.approx(slowest)
    assert values["idle/driver_ms"][0] == 500
    # 1 ms after the beginning of the clock, and it lasted 900.
    assert loaded.Tensors("rollout/wall_ms")[0].wall_time == pytest.approx(EPOCH_S + 0.901, abs=1e-6)
    told = loaded.SummaryMetadata("sync/exposed_ms").summary_description
    assert told.startswith("ms; wall_ms less hidden_ms")


def test_twice_is_as_often_as_once(tmp_path, write):
    run = write_planted_run(tmp_path / "runs")
    first = write(run)
    before = first.path.read_bytes()
    assert write(run).added == 0
    assert first.path.read_bytes() == before


def test_a_run_that_grows_is_added_to_and_one_under_way_is_left_out(tmp_path, write):
    assert write(turns(tmp_path, 1)).path.exists() is False
    first = write(turns(tmp_path, 3))
    assert first.rollouts == 2
    before = first.path.read_bytes()
    assert write(turns(tmp_path, 5)).rollouts == 4
    after = first.path.read_bytes()
    assert after.startswith(before)
    last = write(turns(tmp_path, 5, ended=True))
    values, _ = read(last.path)
    assert values["rollout/wall_ms"] == {r: (r + 1) * 100 for r in range(5)}


def test_what_has_changed_takes_the_place_of_what_was_there(tmp_path, write):
    first = write(turns(tmp_path, 4, ended=True))
    before = first.path.read_bytes()
    # Another node's copy of the records comes later.
    turns(tmp_path, 1, first=2, ended=True, step_ms=200, pid=4)
    second = write(tmp_path / "grown")
    assert first.path.read_bytes().startswith(before)
    values, _ = read(second.path)
    assert values["rollout/wall_ms"] == {0: 100, 1: 200, 2: 600, 3: 400}
    assert write(tmp_path / "grown").added == 0


def test_a_later_attempt_goes_on_where_it_began(tmp_path, write):
    turns(tmp_path, 4, ended=True)
    assert read(write(tmp_path / "grown").path)[0]["rollout/wall_ms"][3] == 400
    turns(tmp_path, 1, attempt=1, first=2, ended=True, step_ms=7, pid=9)
    values, _ = read(write(tmp_path / "grown").path)
    assert values["rollout/wall_ms"] == {0: 100, 1: 200, 2: 21}


def test_a_torn_end_is_mended(tmp_path, write):
    run = turns(tmp_path, 3, ended=True)
    path = write(run).path
    whole = path.read_bytes()
    for torn in (whole[:-3], whole + b"\x20\0\0", whole[:40], b"no record"):
        path.write_bytes(torn)
        write(run)
        assert read(path)[0]["rollout/wall_ms"] == {0: 100, 1: 200, 2: 300}


def test_the_file_of_another_program_is_left_alone(tmp_path, write):
    other = tmp_path / "logs" / "grown" / "events.out.tfevents.1.host"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"theirs")
    with pytest.raises(EventFileError, match="another program"):
        write(turns(tmp_path, 3))
    assert [path.name for path in other.parent.iterdir()] == [other.name]


def test_only_an_option_writes_them_and_it_says_where(tmp_path):
    run = turns(tmp_path / "runs", 3, ended=True)
    before = sorted(tmp_path.rglob("*tfevents*"))
    assert call("report", run).exit_code == 0
    assert before == sorted(tmp_path.rglob("*tfevents*")) == []
    done = call("report", run, "--view", "rollout", "--tensorboard", tmp_path / "logs")
    assert done.exit_code == 0
    assert "3 rollouts in" in done.stderr
    (tmp_path / "file").touch()
    done = call("report", run, "--tensorboard", tmp_path / "file")
    assert done.exit_code == 1
    assert "cannot be written" in done.stderr


def test_a_run_reads_the_same_with_its_scalars_beside_its_records(tmp_path):
    run = turns(tmp_path / "runs", 3, ended=True)
    before = call("ls", run, "--json").stdout, call("merge", run, "--json").exit_code
    assert call("report", run, "--tensorboard", tmp_path / "runs").exit_code == 0
    assert any("tfevents" in name for name in os.listdir(run))
    assert call("merge", run, "--json").exit_code == before[1]
    told = call("merge", run, "--json").stdout
    assert "tfevents" not in told
