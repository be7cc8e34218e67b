"""Perfetto's own trace_processor on merged files: they load clean, and SQL answers from them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from slime_profiler_plugin.layout import RunPaths, parse_rollout_name
from slime_profiler_plugin.merge import merge_run
from slime_profiler_plugin.testing import write_synthetic_run

pytestmark = [pytest.mark.timeout(300)]
ONCE_PER_STEP = ("forward_backward", "grad_sync", "optimizer")
SLICES = """
select s.id, s.name, s.dur, process.name as process,
  extract_arg(s.arg_set_id, 'args.run_id') as run_id,
  extract_arg(s.arg_set_id, 'args.attempt') as attempt,
  extract_arg(s.arg_set_id, 'args.rollout') as rollout,
  extract_arg(s.arg_set_id, 'args.step') as step,
  extract_arg(s.arg_set_id, 'args.sync') as sync,
  extract_arg(s.arg_set_id, 'args.bucket') as bucket,
  extract_arg(s.arg_set_id, 'args.bytes') as bytes,
  extract_arg(s.arg_set_id, 'args.source') as source,
  extract_arg(s.arg_set_id, 'args.phase_id') as phase_id,
  extract_arg(s.arg_set_id, 'args.timing') as timing
from slice s join thread_track t on t.id = s.track_id join thread using (utid) join process using (upid)
order by s.ts
"""
ARROWS = "select slice_out, slice_in from flow"
BRACKETS = "select count(*) as n from args where string_value = 'device_event_bracket'"


class Merged(NamedTuple):
    """A run's merged files, and what the program that recorded it knows to be in them."""

    folder: Path
    run_id: str
    rollouts: list[int | str]
    trainers: int
    engines: int
    steps: int
    model_bytes: int


class Answers(NamedTuple):
    """What trace_processor says about one merged file."""

    rollout: int | str
    slices: list[dict]
    arrows: list[tuple[int, int]]
    brackets: int
    errors: list[dict]

    def named(self, name: str) -> list[dict]:
        return [row for row in self.slices if row["name"] == name]


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory):
    run = write_synthetic_run(
        tmp_path_factory.mktemp("synthetic"), trainers=3, engines=2, rollouts=2, buckets=4
    )
    merge_run([run.folder], "all")
    return Merged(
        run.folder, run.run_id, ["initial", 0, 1], trainers=3, engines=2, steps=2, model_bytes=4 * 4096
    )


@pytest.fixture(scope="module")
def recorded(demo):
    from slime_profiler_plugin.demo import Settings

    settings = Settings()
    folder = Path(demo["run_folder"])
    return Merged(
        folder,
        folder.name,
        ["initial", *range(settings.rollouts)],
        trainers=settings.trainers,
        engines=settings.engines,
        steps=settings.steps,
        model_bytes=demo["model_bytes"],
    )


@pytest.fixture(scope="module", params=["synthetic", pytest.param("recorded", marks=pytest.mark.ray)])
def merged(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def answers(merged, perfetto):
    """Each merged file asked once."""
    found = []
    for path in sorted(RunPaths.at(merged.folder).merged.glob("*.trace.json.gz")):
        slices, arrows, (brackets,), errors = perfetto.query(path, SLICES, ARROWS, BRACKETS)
        pairs = [(row["slice_out"], row["slice_in"]) for row in arrows]
        rollout = parse_rollout_name(path.name.removesuffix(".trace.json.gz"))
        found.append(Answers(rollout, slices, pairs, brackets["n"], errors))
    return found


def _number_of(process: str | None, kind: str) -> int | None:
    """3 for a process named ``actor rank 3 · …`` and `kind` ``actor rank``."""
    found = re.match(rf"{kind} (\d+) ·", process or "")
    return int(found[1]) if found else None


def test_every_rollout_has_a_file_that_loads_without_an_error(answers, merged):
    assert {a.rollout for a in answers} == set(merged.rollouts)
    assert [a.errors for a in answers] == [[]] * len(merged.rollouts)
    assert all(a.slices for a in answers)


def test_phases_of_a_step_occur_once_under_the_process_of_their_rank(answers, merged):
    for a in answers:
        seen = Counter(
            (row["name"], _number_of(row["process"], "actor rank"), row["step"])
            for row in a.slices
            if row["name"] in ONCE_PER_STEP
        )
        steps = [] if a.rollout == "initial" else range(merged.steps)
        ranks = range(merged.trainers)
        assert seen == {(name, rank, step): 1 for name in ONCE_PER_STEP for rank in ranks for step in steps}


def test_each_bucket_has_one_arrow_to_a_receive_of_each_engine(answers, merged):
    for a in answers:
        by_id = {row["id"]: row for row in a.slices}
        receivers = defaultdict(list)
        for start, end in a.arrows:
            send, receive = by_id[start], by_id[end]
            assert (send["name"], receive["name"]) == ("bucket_send", "engine_receive")
            for field in ("sync", "bucket", "bytes", "source"):
                assert send[field] == receive[field]
            receivers[start].append(_number_of(receive["process"], "engine"))
        sends = a.named("bucket_send")
        assert sends
        assert {row["id"]: list(range(merged.engines)) for row in sends} == {
            start: sorted(ranks) for start, ranks in receivers.items()
        }


def test_a_sync_sends_the_bytes_of_the_model(answers, merged):
    for a in answers:
        sent = Counter()
        for row in a.named("bucket_send"):
            sent[row["sync"]] += row["bytes"]
        assert list(sent.values()) == [merged.model_bytes]


def test_ids_in_event_args_are_right(answers, merged):
    for a in answers:
        phases = [row for row in a.slices if row["phase_id"] is not None]
        assert len(phases) == len({(row["process"], row["phase_id"]) for row in phases})
        assert {row["run_id"] for row in phases} == {merged.run_id}
        assert {row["attempt"] for row in phases} == {0}
        trained = [row for row in phases if row["name"] in (*ONCE_PER_STEP, "weight_sync", "bucket_send")]
        assert {row["rollout"] for row in trained} == {a.rollout}
        syncs = {row["sync"] for row in phases if row["name"].startswith(("bucket_send", "engine_receive"))}
        assert syncs == {0 if a.rollout == "initial" else a.rollout + 1}
        sources = {row["source"] for row in a.named("bucket_send")}
        assert len(sources) == 1
        assert re.fullmatch(r"actor-0@\d+-\d+", *sources)


def test_nothing_on_a_cpu_claims_a_device_event_bracket(answers):
    assert [a.brackets for a in answers] == [0] * len(answers)
    assert {row["timing"] for a in answers for row in a.slices if row["phase_id"] is not None} == {"host"}
