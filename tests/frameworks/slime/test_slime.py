"""slime's own train.py and train_async.py, run twice: without the plugin and with it.

What of it is not slime's, and what a CPU cannot show, is in this folder's README.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import slime_sequences as sequences
from command_line import run
from merged_trace import events_of
from recordings import Recording
from slime_recordings import Place, bytes_of, recordings, tensors_of
from slime_runs import ROLLOUTS, RUN, Case, engine_tells, run_job, seen

from slime_profiler_plugin import schema

pytestmark = [pytest.mark.slime, pytest.mark.timeout(3000)]

INITIAL = "initial"
#: How it is switched on, beside what is run.
CASES: dict[str, tuple[str, Case]] = {
    "distributed-PP2": ("launch", Case(pp=2, engines=2)),
    "distributed-DP2": ("env", Case()),
    "distributed-TP2": ("launch", Case(tp=2)),
    "distributed-EP2": ("env", Case(ep=2)),
    "distributed-async": ("env", Case(script="train_async.py")),
    "tensor-TP2": ("launch", Case("tensor", tp=2)),
    "tensor-offload-TP2": ("env", Case("tensor", tp=2, offload=True)),
    "disk-PP2": ("env", Case("disk", pp=2)),
    "delta-TP2": ("launch", Case("delta", tp=2, engines=2)),
}
#: The phase that an arrow to each engine begins in.
SENT = {
    "distributed": "bucket_send",
    "tensor": "bucket_send",
    "disk": "shard_write",
    "delta": "delta_publish",
}
#: In the words of records.
TRANSPORTS = {"distributed": "nccl", "tensor": "ipc", "disk": "disk", "delta": "disk_delta"}


@dataclass
class Pair:
    """A job without the plugin, and the same with it."""

    case: Case
    off: Path
    on: Path

    @cached_property
    def records(self) -> dict[Place, Recording]:
        return recordings(self.on)

    @property
    def trainers(self) -> list[Recording]:
        return [self.records["actor", rank] for rank in (0, 1)]

    def kind(self, rank: int) -> str:
        """What a trainer rank does in a sync: the first asks the engines, a source sends, others help."""
        if rank == 0:
            return "first"
        return "source" if self.case.transport == "distributed" and self.case.pp == 2 else "other"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[] if name == "distributed-PP2" else [pytest.mark.full]) for name in CASES
    ],
)
def pair(request, tmp_path_factory):
    plugin, case = CASES[request.param]
    folder = tmp_path_factory.mktemp("slime")
    run_job(case, folder / "off")
    run_job(case, folder / "on", plugin=plugin)
    return Pair(case, folder / "off", folder / "on")


def syncs(recording: Recording) -> list[schema.Phase]:
    return sorted((p for p in recording.phases if p.name == "weight_sync"), key=lambda p: p.start_ns)


def inside(recording: Recording, parent: schema.Phase) -> list[schema.Phase]:
    return sorted((p for p in recording.phases if p.parent == parent.id), key=lambda p: p.id)


def within(recording: Recording, parent: schema.Phase) -> list[schema.Phase]:
    """At any depth."""
    found = inside(recording, parent)
    return [*found, *(deeper for phase in found for deeper in within(recording, phase))]


# What a job does is the same.


@pytest.mark.parametrize("how", ["off", "on"])
def test_engines_hold_what_was_sent(pair, how):
    """What slime saves as a checkpoint after each rollout went another way than what it sends."""
    out = getattr(pair, how)
    saved = [tensors_of(out / "saved" / str(rollout)) for rollout in range(ROLLOUTS)]
    # The delta updater takes the engines to have the model that all start from.
    expected = saved if pair.case.transport == "delta" else [tensors_of(out / "model"), *saved]
    assert all(a != b for a, b in pairwise(expected)), "nothing was trained"
    for index in range(pair.case.engines):
        told = [line for line in engine_tells(out, index) if "weights" in line]
        assert not [line for line in engine_tells(out, index) if "failed" in line]
        assert [line["weights"] for line in told] == expected
        assert [line["version"] for line in told] == [str(n) for n in range(1, len(expected) + 1)]


def test_results_are_the_same_bit_for_bit(pair):
    off, on = (
        {who: kinds.get("hook", []) for who, kinds in seen(out).items() if who} for out in (pair.off, pair.on)
    )
    assert off == on
    told = off["trainer 0"] + off["trainer 1"]
    for rollout in range(ROLLOUTS):
        for step in (0, 1):
            assert [line for line in told if line.startswith(f"before step {step} of rollout {rollout}: ")]
    assert any(line.startswith("advantages of rollout 1: ") for line in told)
    assert losses(pair.off) == losses(pair.on)
    assert len(losses(pair.off)) == 2 * ROLLOUTS
    for rollout in range(ROLLOUTS):
        a, b = (tensors_of(out / "saved" / str(rollout)) for out in (pair.off, pair.on))
        assert a == b


def losses(out: Path) -> list[str]:
    """Of each step, as slime logs it."""
    return re.findall(r"- (step \d+: \{.*\})", (out / "job.log").read_text())


def test_collectives_and_ray_calls_come_in_the_same_order(pair):
    off, on = seen(pair.off), seen(pair.on)
    assert off.keys() == on.keys() >= {"driver", "rollout manager", "trainer 0", "trainer 1"}
    for who in off.keys() - {""}:
        assert without_pickles(off[who]) == without_pickles(on[who]), who
        assert one_try(off[who].get("call", [])) == one_try(on[who].get("call", [])), who
    for rank in (0, 1):
        assert off[f"trainer {rank}"]["collective"], "no collective was seen"
    assert "generate" in off["driver"]["call"]


def without_pickles(told: dict[str, list[Any]]) -> list[Any]:
    """Collectives, but for the length of pickled objects, which is not the same in two jobs that are."""
    return [
        [name, ranks, [re.sub(r"^torch\.uint8\[\d+\]$", "pickled", tensor) for tensor in tensors]]
        for name, ranks, tensors in told.get("collective", [])
    ]


def one_try(calls: list[str]) -> list[str]:
    """A lock that another source holds is asked for until it is free."""
    return [call for before, call in pairwise(["", *calls]) if (before, call) != ("acquire", "acquire")]


def test_engines_are_asked_for_the_same(pair):
    for index in range(pair.case.engines):
        off, on = (asked(out, index) for out in (pair.off, pair.on))
        assert off == on
        assert sum(map(len, off.values())) > 8


def asked(out: Path, index: int) -> dict[str, list[Any]]:
    """By process group: what two pipeline stages ask for is in no order."""
    found: dict[str, list[Any]] = {}
    for line in engine_tells(out, index):
        if "request" in line:
            group = line.pop("group") or ""
            found.setdefault(group, []).append(line)
    return found


# What is recorded.


def test_who_records(pair):
    expected = Counter({"driver": 1, "actor": 2, "rollout_manager": 1})
    expected.update({"engine": pair.case.engines, "engine_client": pair.case.engines})
    assert Counter(role for role, _ in pair.records) == expected
    for recording in pair.records.values():
        assert recording.drops == []
        assert not [phase for phase in recording.phases if phase.error is not None]
        assert {line.run_id for line in recording.all(schema.Process)} == {RUN}
        assert len({line.attempt for line in recording.all(schema.Process)}) == 1


def test_ranks_are_megatrons(pair):
    for rank, recording in enumerate(pair.trainers):
        ranks = [line.ranks for line in recording.lines if getattr(line, "ranks", None)][-1]
        own = {"tp": pair.case.tp, "pp": pair.case.pp, "dp": pair.case.dp}
        assert {name: ranks[name] for name in own} == {name: rank if n == 2 else 0 for name, n in own.items()}


def test_each_sync_has_its_rollout_number_and_version(pair):
    baseline = pair.case.transport == "delta"
    for recording in pair.trainers:
        found = syncs(recording)
        assert [sync.rollout for sync in found] == [INITIAL, *range(ROLLOUTS)]
        assert [sync.sync for sync in found] == list(range(ROLLOUTS + 1))
        versions = [str(n + (0 if baseline else 1)) for n in range(ROLLOUTS + 1)]
        assert [sync.weight_version for sync in found] == versions
        assert {sync.transport for sync in found} == {TRANSPORTS[pair.case.transport]}
        for sync in found:
            for phase in within(recording, sync):
                assert phase.rollout == sync.rollout, phase
                assert (phase.sync, phase.weight_version) == (sync.sync, sync.weight_version), phase


def test_phases_of_a_sync_come_in_order(pair):
    patterns = sequences.PATTERNS[pair.case.transport]
    for rank, recording in enumerate(pair.trainers):
        for number, sync in enumerate(syncs(recording)):
            names = [phase.name for phase in inside(recording, sync)]
            pattern = patterns[pair.kind(rank)]
            if number == 0:
                assert names[:3] == ["engine_wait", "connect_engines", "barrier"]
                pattern = patterns.get(f"{pair.kind(rank)} baseline", pattern)
            else:
                assert "connect_engines" not in names
            assert sequences.matches(pattern, names), (rank, number, names)
            times = [(phase.start_ns, phase.start_ns + phase.dur_ns) for phase in inside(recording, sync)]
            assert all(before[1] <= after[0] for before, after in pairwise(times))


def test_a_bucket_is_gathered_and_converted(pair):
    """Where nothing is split, nothing is gathered."""
    gathers = {"tp_gather" if pair.case.tp == 2 else "", "ep_gather" if pair.case.ep == 2 else ""}
    if pair.case.transport == "disk" and pair.case.pp == 2:
        gathers.add("pp_gather")
    recording = pair.trainers[0]
    for sync in syncs(recording):
        below = {
            phase.name
            for ready in within(recording, sync)
            if ready.name == "bucket_ready"
            for phase in within(recording, ready)
        }
        assert below == {"weight_convert", *gathers} - {""}


def test_bytes_are_those_of_the_model(pair):
    total, tensors = bytes_of(pair.on / "model"), len(tensors_of(pair.on / "model"))
    name = {"distributed": "bucket_send", "tensor": "bucket_send", "disk": "shard_write"}.get(
        pair.case.transport, "bucket_ready"
    )
    for sync in range(1, ROLLOUTS + 1):
        sent = [
            phase
            for recording in pair.trainers
            for phase in recording.phases
            if (phase.name, phase.sync) == (name, sync)
        ]
        assert sum(phase.bytes for phase in sent) == total
        assert sum(phase.tensors for phase in sent) == tensors
        assert all(0 < phase.bytes <= total for phase in sent)


def test_buckets_are_counted_as_the_engines_count_them(pair):
    """By group, from 0 in each sync: this is what joins the two."""
    sent: dict[tuple[str, Any], list[tuple[Any, ...]]] = {}
    for recording in pair.trainers:
        for phase in sorted(recording.phases, key=lambda phase: phase.start_ns):
            if phase.name == "bucket_send":
                group = (phase.attrs or {}).get("group")
                key = (phase.weight_version, group)
                sent.setdefault(key, []).append((phase.bucket, phase.bytes, phase.tensors))
    assert bool(sent) == (pair.case.transport in ("distributed", "tensor"))
    assert len({group for _, group in sent}) == (2 if pair.case.pp == 2 and sent else min(len(sent), 1))
    for buckets in sent.values():
        assert [number for number, _, _ in buckets] == list(range(len(buckets)))
    for index in range(pair.case.engines):
        received: dict[tuple[str, Any], list[tuple[Any, ...]]] = {}
        for phase in sorted(pair.records["engine", index].phases, key=lambda phase: phase.start_ns):
            if phase.name == "engine_receive":
                key = (phase.weight_version, (phase.attrs or {}).get("group"))
                received.setdefault(key, []).append((phase.bucket, phase.bytes, phase.tensors))
        assert received == sent


def test_the_driver_has_the_engines_load_files(pair):
    drivers = [recording for (role, _), recording in pair.records.items() if role == "driver"]
    found = [sync for recording in drivers for sync in syncs(recording)]
    if pair.case.transport != "disk":
        assert found == []
        return
    (recording,) = drivers
    assert [sync.weight_version for sync in found] == [str(n + 1) for n in range(ROLLOUTS + 1)]
    for sync in found:
        names = [phase.name for phase in inside(recording, sync)]
        assert sequences.matches(sequences.PATTERNS["disk"]["driver"], names)
    for index in range(pair.case.engines):
        loads = [p for p in pair.records["engine", index].phases if p.name == "engine_load"]
        for sync, load in zip(found, loads, strict=True):
            assert sync.start_ns < load.start_ns < sync.start_ns + sync.dur_ns


def test_training_of_each_rollout(pair):
    for recording in pair.trainers:
        for rollout in range(ROLLOUTS):
            phases = sorted((p for p in recording.phases if p.rollout == rollout), key=lambda p: p.id)
            names = Counter(phase.name for phase in phases)
            for once in ("data_preprocess", "ref_log_probs", "log_probs", "advantages", "actor_train"):
                assert names[once] == 1, (rollout, once)
            assert names["train_step"] == names["optimizer"] == 2
            assert names["save_model"] == 1
            steps = [phase for phase in phases if phase.name == "train_step"]
            assert [step.step for step in steps] == [0, 1]
            for step in steps:
                parts = {phase.name for phase in within(recording, step)}
                assert {"forward_backward", "forward", "backward", "grad_sync", "optimizer"} <= parts
                if pair.case.pp == 2:
                    assert parts & {"pp_send", "pp_recv", "pp_send_recv"}
            firsts = [name for name in names if name in ORDER]
            assert sorted(firsts, key=ORDER.index) == firsts
        assert [p.rollout for p in recording.phases if p.name == "trainer_init"] == [INITIAL]
        assert "train_wait" in {phase.name for phase in recording.phases}


#: As they first begin within a rollout.
ORDER = (
    "data_preprocess",
    "train_rollout",
    "ref_log_probs",
    "log_probs",
    "advantages",
    "actor_train",
    "train_step",
    "save_model",
    "weight_sync",
)


def test_trainers_and_engines_give_way_to_each_other(pair):
    """The calls are slime's; that no memory is moved does not show in them."""
    all_times, trained = [INITIAL, *range(ROLLOUTS)], list(range(ROLLOUTS))
    twice = [rollout for rollout in trained for _ in range(2)]  # for the training, and to save the model
    expected = {"sleep": [INITIAL, *twice], "wake_up": twice} if pair.case.offload else {}
    for recording in pair.trainers:
        assert rollouts_of(recording, {"sleep", "wake_up"}) == expected
    expected = (
        dict.fromkeys(("offload", "onload_weights", "onload_kv"), all_times) if pair.case.offload else {}
    )
    assert (
        rollouts_of(pair.records["rollout_manager", 0], {"offload", "onload_weights", "onload_kv"})
        == expected
    )


def rollouts_of(recording: Recording, names: set[str]) -> dict[str, list[int | str | None]]:
    """Of the phases of those names, in their order."""
    found: dict[str, list[int | str | None]] = {}
    for phase in sorted(recording.phases, key=lambda phase: phase.start_ns):
        if phase.name in names:
            found.setdefault(phase.name, []).append(phase.rollout)
    return found


def test_rollouts_of_the_manager(pair):
    phases = pair.records["rollout_manager", 0].phases
    for rollout in range(ROLLOUTS):
        names = Counter(phase.name for phase in phases if phase.rollout == rollout)
        assert names["generate"] == 1
        assert names["convert_samples"] == 2
        assert names["reward"] >= 4
    assert [phase.rollout for phase in phases if phase.name == "eval"] == [ROLLOUTS - 1]
    given_way = {INITIAL} if pair.case.offload else set()
    assert {phase.rollout for phase in phases} == set(range(ROLLOUTS)) | given_way


def test_clients_ask_the_engines(pair):
    for index in range(pair.case.engines):
        phases = pair.records["engine_client", index].phases
        assert {phase.name for phase in phases} == {"engine_request"}
        asked_for = {(phase.attrs or {})["endpoint"] for phase in phases}
        wanted = {
            "distributed": "update_weights_from_distributed",
            "tensor": "update_weights_from_tensor",
        }.get(pair.case.transport, "update_weights_from_disk")
        assert wanted in asked_for
        versions = {phase.weight_version for phase in phases if (phase.attrs or {})["endpoint"] == wanted}
        first = 1
        assert versions == {
            str(n) for n in range(first, ROLLOUTS + (1 if pair.case.transport == "delta" else 2))
        }


def test_merged_files_have_every_sources_arrows(pair):
    merged = run("merge", pair.on / "runs" / RUN, "--rollout", "all")
    assert merged.exit_code == 0, merged.output
    folder = pair.on / "runs" / RUN / "merged"
    what = SENT[pair.case.transport]
    for name in (INITIAL, *(f"rollout_{rollout:06d}" for rollout in range(ROLLOUTS))):
        events = events_of(folder / f"{name}.trace.json.gz")
        begun = [e for e in events if e["ph"] == "s" and e.get("cat") == "weight_sync"]
        ended = [e for e in events if e["ph"] == "f" and e.get("cat") == "weight_sync"]
        sends = [e for e in events if e["ph"] == "X" and e["name"] == what]
        recorded = [
            phase
            for recording in pair.trainers
            for phase in recording.phases
            if phase.name == what and label(phase.rollout) == name
        ]
        assert bool(recorded) == (pair.case.transport != "delta" or name != INITIAL)
        assert len(sends) == len(recorded)
        assert len(begun) == len(ended) == len(sends) * pair.case.engines
        if sends:
            sources = 2 if pair.case.pp == 2 and pair.case.transport == "distributed" else 1
            assert len({event["pid"] for event in begun}) == sources
            assert len({event["pid"] for event in ended}) == pair.case.engines


def label(rollout: int | str | None) -> str:
    return f"rollout_{rollout:06d}" if isinstance(rollout, int) else str(rollout)
