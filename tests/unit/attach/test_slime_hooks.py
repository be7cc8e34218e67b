"""Phases of slime's weight syncs, with small stand-ins for slime."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace

import pytest
from slime_stand_ins import inside, names

from slime_profiler_plugin import timeline
from slime_profiler_plugin.attach.slime import register
from slime_profiler_plugin.record import _slow_syncs


def broadcaster(stand_ins, *, is_source=True, experts=0, stage=0, engines=2, **answers):
    calls, handles = stand_ins["calls"], stand_ins["handles"]
    parameters = [(f"w{n}", calls.Tensor(4 + n, tensor_model_parallel=n == 0)) for n in range(3)]
    updater = stand_ins["distributed"].UpdateWeightFromDistributed(
        SimpleNamespace(is_source=is_source),
        parameters,
        [(f"m.experts.{n}", calls.Tensor(8)) for n in range(experts)],
        stage,
    )
    lock = handles.ActorHandle(acquire=True)
    updater.connect_rollout_engines([handles.ActorHandle(**answers) for _ in range(engines)], lock)
    return updater


BUCKET = ["bucket_ready", "bucket_lock_wait", "bucket_send", "bucket_ack", "bucket_lock_release"]


def test_a_broadcast_sync_has_each_phase_in_order(stand_ins, record):
    updater = broadcaster(stand_ins)
    updater.update_weights()
    phases = record()
    gather = ["tp_gather", "weight_convert", "weight_convert"]
    assert names(phases) == [
        *("connect_engines", "weight_sync", "pause_generation", "flush_cache", "barrier"),
        *(BUCKET[0], *gather, *BUCKET[1:]),
        *(BUCKET[0], "weight_convert", *BUCKET[1:]),
        *("barrier", "barrier", "continue_generation", "sync_complete", "barrier"),
    ]
    assert inside(phases, "bucket_ready") == gather
    assert inside(phases, "sync_complete") == ["barrier"]
    sends = [phase for phase in phases if phase.name == "bucket_send"]
    assert [(p.bucket, p.bytes, p.tensors, p.attrs["group"]) for p in sends] == [
        (0, 9, 2, "slime-pp_0"),
        (1, 6, 1, "slime-pp_0"),
    ]
    for phase in phases[1:]:
        assert (phase.sync, phase.weight_version, phase.transport) == (0, "1", "nccl"), phase
        assert phase.source == timeline.source()
        assert phase.rollout == "initial"
    for name in BUCKET:
        assert [phase.bucket for phase in phases if phase.name == name] == [0, 1]


def test_buckets_are_numbered_anew_in_each_sync_and_the_rollout_is_the_last_trained(stand_ins, record):
    updater = broadcaster(stand_ins)
    for rollout in (None, 4, 5):
        if rollout is not None:
            timeline.set_rollout(rollout)
        updater.update_weights()
    sends = [phase for phase in record() if phase.name == "bucket_send"]
    assert [(p.rollout, p.sync, p.weight_version, p.bucket) for p in sends] == [
        (rollout, sync, str(sync + 1), bucket)
        for sync, rollout in enumerate(("initial", 4, 5))
        for bucket in (0, 1)
    ]


def test_pipeline_stages_are_groups_of_their_own(stand_ins, record):
    broadcaster(stand_ins, stage=1).update_weights()
    sends = [phase for phase in record() if phase.name == "bucket_send"]
    assert [(p.bucket, p.attrs["group"]) for p in sends] == [(0, "slime-pp_1"), (1, "slime-pp_1")]


def test_a_rank_that_sends_nothing_only_gathers(stand_ins, record):
    broadcaster(stand_ins, is_source=False, engines=0, experts=1).update_weights()
    phases = record()
    assert inside(phases, "weight_sync") == [
        *("barrier", "tp_gather", "barrier", "ep_gather", "barrier", "barrier")
    ]
    assert {phase.source for phase in phases} == {None}


def test_experts_are_gathered_then_converted_together(stand_ins, record):
    updater = broadcaster(stand_ins, experts=3)
    updater.parameters = []
    updater.update_weights()
    phases = record()
    assert inside(phases, "bucket_ready") == ["ep_gather", "weight_convert"]
    gather = next(phase for phase in phases if phase.name == "ep_gather")
    assert (gather.bytes, gather.tensors, gather.attrs["ep_size"]) == (24, 3, 2)


def test_what_is_called_and_given_back_is_the_same_with_and_without(stand_ins, tmp_path):
    log = stand_ins["calls"].LOG

    def sync():
        log.clear()
        updater = broadcaster(stand_ins, experts=2)
        updater.update_weights()
        return list(log), updater.weight_version

    off = sync()
    register()
    waiting = sync()
    timeline.start(
        {"out": str(tmp_path), "outputs": {"nvtx": False}}, run_id="run", role="actor", rank=0, world_size=1
    )
    assert off == waiting == sync()


def test_an_error_ends_what_is_open_and_passes(stand_ins, record):
    failure = ValueError("the engine is gone")
    updater = broadcaster(stand_ins, update_weights_from_distributed=failure)
    with pytest.raises(ValueError, match="the engine is gone") as raised:
        updater.update_weights()
    assert raised.value is failure
    phases = record()
    failed = {phase.name for phase in phases if phase.error is not None}
    assert failed == {"bucket_ack", "weight_sync"}
    broadcaster(stand_ins).update_weights()
    again = record()[len(phases) :]
    assert again[1].name == "weight_sync"
    assert all(phase.error is None for phase in again)


def tensor_updater(stand_ins, *, gather_source=0, remote=0, batches=()):
    calls, handles = stand_ins["calls"], stand_ins["handles"]
    weights = {
        "w": calls.Tensor(6, tensor_model_parallel=True),
        "empty": calls.Nothing(),
        "m.experts.0": calls.Tensor(8),
    }
    arguments = SimpleNamespace(
        gather_source=gather_source, remote_engines=[handles.ActorHandle() for _ in range(remote)]
    )
    updater = stand_ins["tensor"].UpdateWeightFromTensor(arguments, weights, batches)
    updater.connect_rollout_engines([handles.ActorHandle(), handles.ActorHandle()], None)
    return updater


def test_tensors_are_counted_as_the_engine_counts_calls(stand_ins, record):
    tensor_updater(stand_ins, batches=[[("m.experts.1", stand_ins["calls"].Tensor(5))]]).update_weights()
    phases = record()
    sends = [phase for phase in phases if phase.name == "bucket_send"]
    # The second bucket is empty on all ranks: no call is made of it.
    assert [(p.bucket, p.bytes, p.engine, p.transport) for p in sends] == [
        (0, 6, 1, "ipc"),
        (1, 8, 1, "ipc"),
        (2, 5, 1, "ipc"),
    ]
    assert {p.source for p in sends} == {timeline.source()}
    ready = [phase for phase in phases if phase.name == "bucket_ready"]
    assert [p.bucket for p in ready] == [0, 1, 1, 2]
    assert [p.bucket for p in phases if p.name == "bucket_ack"] == [0, 1, 2]
    assert inside(phases, "bucket_ready") == ["tp_gather", "weight_convert"]
    gathers = [phase for phase in phases if phase.name == "ep_gather"]
    assert {phase.parent for phase in gathers} == {ready[2].id, ready[3].id}


def test_a_rank_whose_tensors_another_sends_hands_them_over(stand_ins, record):
    tensor_updater(stand_ins, gather_source=1).update_weights()
    phases = record()
    assert "bucket_send" not in names(phases)
    assert [p.bucket for p in phases if p.name == "bucket_hand_over"] == [0, 1, 2]
    assert {p.source for p in phases} == {None}


def test_engines_elsewhere_get_a_broadcast_beside(stand_ins, record):
    tensor_updater(stand_ins, remote=1).update_weights()
    last = [phase for phase in record() if phase.name == "bucket_send"][-1]
    assert (last.transport, last.bucket, last.attrs["group"], last.engine) == ("nccl", 0, "slime", None)


def test_files_are_written_and_the_driver_has_them_read(stand_ins, record):
    calls, handles = stand_ins["calls"], stand_ins["handles"]
    hooked = []
    arguments = SimpleNamespace(is_source=True, hook=lambda *given: hooked.append(given))
    updater = stand_ins["disk"].UpdateWeightFromDisk(
        arguments, {f"w{n}": calls.Tensor(n + 1) for n in range(3)}
    )
    updater.connect_rollout_engines([], None)
    updater.update_weights()
    assert hooked == [(arguments, "folder", [])]
    phases = record()
    writes = [phase for phase in phases if phase.name == "shard_write"]
    # The second belongs to the writer of the other node.
    assert [(p.bucket, p.bytes, p.sync, p.weight_version, p.transport) for p in writes] == [
        (0, 1, 0, "1", "disk"),
        (2, 3, 0, "1", "disk"),
    ]
    assert [p.bucket for p in phases if p.name == "bucket_ready"] == [0, 2]
    assert names(phases)[-2:] == ["shard_finalize", "post_write"]
    group = stand_ins["group"].RayTrainGroup([handles.ActorHandle()])
    assert group.async_train(3, None) == [3]
    assert group.update_weights() == "sent"
    group._reload_rollout_weights_from_disk("folder", "1")
    reload = record()[len(phases) :]
    assert names(reload) == [
        *("update_weights", "weight_sync", "engine_wait", "pause_generation", "flush_cache", "engine_wait"),
        *("continue_generation", "sync_complete"),
    ]
    assert {(p.weight_version, p.rollout, p.sync, p.transport) for p in reload[1:]} == {
        ("1", 3, None, "disk")
    }
    assert [p.attrs["call"] for p in reload if p.name == "engine_wait"] == [
        *("pull_weights", "update_weights_from_disk"),
    ]


def test_the_driver_watches_how_long_each_sync_takes(stand_ins, tmp_path, monkeypatch):
    register()
    profiler = {"schedule": None, "trigger": {"min_syncs": 1, "sync_over_p95": 1}}
    timeline.start({"out": str(tmp_path), "profiler": profiler}, run_id="run", role="driver")
    ticks = itertools.accumulate(range(10, 1000))  # each takes longer than the one before
    monkeypatch.setattr(_slow_syncs, "monotonic_ns", lambda: next(ticks))
    group = stand_ins["group"].RayTrainGroup([stand_ins["handles"].ActorHandle()])
    group.update_weights()
    for rollout in range(2):
        group.async_train(rollout, None)
        group.update_weights()
    timeline.flush()
    (asked,) = (tmp_path / "run" / "trigger").iterdir()
    told = json.loads(asked.read_bytes())
    assert (told["asked_in"], told["rollout"], told["syncs"]) == (1, 4, 1)


def test_the_first_difference_is_a_baseline(stand_ins, record):
    calls, handles = stand_ins["calls"], stand_ins["handles"]
    updater = stand_ins["delta"].UpdateWeightFromDiskDelta(
        SimpleNamespace(is_source=True, hook=None), [("w", calls.Tensor(6))]
    )
    updater.connect_rollout_engines([handles.ActorHandle()], None)
    updater.update_weights()
    updater.update_weights()
    phases = record()
    first, second = (phase for phase in phases if phase.name == "weight_sync")
    assert (first.sync, first.weight_version, first.attrs["baseline"]) == (0, "0", True)
    assert inside(phases, "weight_sync") == ["bucket_ready", "engine_wait"]
    assert (second.sync, second.weight_version, second.attrs) == (1, "1", {})
    assert [p.name for p in phases if p.parent == second.id] == [
        *("delta_encode", "barrier", "delta_publish", "engine_wait", "pause_generation", "flush_cache"),
        *("engine_wait", "continue_generation", "sync_complete"),
    ]
    encode = next(phase for phase in phases if phase.name == "delta_encode")
    publish = next(phase for phase in phases if phase.name == "delta_publish")
    assert (encode.bytes, encode.attrs) == (6, {"changed_bytes": 1})
    assert (publish.bytes, publish.tensors, publish.transport) == (10, 1, "disk_delta")
