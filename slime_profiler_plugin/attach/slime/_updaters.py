"""Phases of the updaters: connecting, buckets, and what the engines are asked for."""

from __future__ import annotations

from typing import Any, Final

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.attach._wrap import Bound

from ._sync import Call, Sync, argument, current, size_of, syncing

#: Of actors' methods, the phase that waiting for their answers is; of all others it is this.
_WAIT: Final = "engine_wait"
_ANSWERS: Final = {
    "pause_generation": "pause_generation",
    "flush_cache": "flush_cache",
    "continue_generation": "continue_generation",
    "update_weights_from_distributed": "bucket_ack",
    "update_weights_from_tensor": "bucket_ack",
    "release": "bucket_lock_release",
}
#: Asked for again and again; `bucket_lock_wait` goes on around it.
_LOCK: Final = "acquire"
#: Called and waited for in one statement: the phase begins with the first call.
_IN_ONE: Final = frozenset(
    {"pause_generation", "flush_cache", "continue_generation", "release", "update_weights_from_disk"}
)


def around_connect(call: Call, _bound: Bound) -> Any:
    """Groups or channels to the engines are made."""
    sync = current()
    with timeline.phase("connect_engines", **({} if sync is None else sync.fields())):
        return call()


def around_update(call: Call, bound: Bound) -> Any:
    """An updater's whole work; the actor's around it may have opened the sync."""
    if not timeline.on:
        return call()
    with syncing(bound.args[0]) as sync:
        sync.has_run = True
        return call()


def around_barrier(call: Call, _bound: Bound) -> Any:
    """All trainer ranks meet."""
    sync = current()
    if sync is None:
        return call()
    with sync.phase("barrier"):
        return call()


def around_actor_call(call: Call, bound: Bound) -> Any:
    """A method of any actor is called; its answer comes later."""
    sync = current()
    if sync is None:
        return call()
    name = argument(bound, 1, "method_name")
    if name in _IN_ONE and sync.called != name:
        sync.asking.begin(_answer_phase(sync, name))
    sync.called = name
    sync.counts[f"calls of {name}"] += 1
    return call()


def around_get(call: Call, _bound: Bound) -> Any:
    """Somebody waits for answers: those of what was called last."""
    sync = current()
    if sync is None:
        return call()
    name, sync.called = sync.called, None
    if name is None or name == _LOCK:
        return call()
    if name not in _IN_ONE:
        sync.asking.begin(_answer_phase(sync, name))
    try:
        result = call()
    except BaseException as error:
        sync.asking.end(error)
        raise
    sync.asking.end()
    if name == "continue_generation":
        sync.completing.begin(sync.phase("sync_complete"))
    return result


def _answer_phase(sync: Sync, name: str) -> Any:
    phase = _ANSWERS.get(name, _WAIT)
    if phase.startswith("bucket_"):
        return timeline.phase(phase, **(sync.bucket or sync.fields()))
    return sync.phase(phase, **({"call": name} if phase == _WAIT else {}))


def around_chunk(call: Call, bound: Bound) -> Any:
    """The next bucket is asked for. Ranks that send none only take part in the gathers."""
    sync = current()
    if sync is None or not sync.is_source:
        return call()
    group = getattr(bound.args[0], "_group_name", None)
    return ready(sync, call, {} if group is None else {"group": group})


def around_direct_chunk(call: Call, _bound: Bound) -> Any:
    """The same of the iterator that both tensors and files come from."""
    sync = current()
    if sync is None:
        return call()
    if sync.transport == "disk":
        nodes, node, writes = sync.layout or (1, 0, False)
        if not writes or sync.counts["ready"] % nodes != node:
            sync.counts["ready"] += 1
            return call()
    return ready(sync, call, {})


def ready(sync: Sync, call: Call, more: dict[str, Any]) -> Any:
    """The next bucket is filled by `call`; the end of a generator is no bucket."""
    span = sync.begin("bucket_ready", bucket=sync.next_bucket(), **more)
    try:
        with span.inside():
            chunk = call()
    except StopIteration:
        span.cancel()
        raise
    except BaseException:
        span.end()
        raise
    sync.counts["ready"] += 1
    span.end(**size_of(chunk))
    return chunk


def around_bucket(call: Call, bound: Bound) -> Any:
    """A bucket's turn: lock, send, answers, release."""
    sync = current()
    if sync is None:
        return call()
    group = getattr(bound.args[0], "_group_name", "")
    sync.bucket = sync.fields(
        bucket=sync.counts[group], group=group, **size_of(argument(bound, 1, "converted_named_tensors"))
    )
    sync.waiting.begin(timeline.phase("bucket_lock_wait", **sync.bucket))
    try:
        return call()
    except BaseException as error:
        sync.waiting.end(error)
        sync.asking.end(error)
        raise
    finally:
        sync.waiting.end()
        sync.bucket = {}


def around_send(call: Call, bound: Bound) -> Any:
    """A bucket is announced to the engines and broadcast; where there is a lock, it is ours by now."""
    sync = current()
    if sync is None:
        return call()
    sync.waiting.end()
    group = str(argument(bound, 0, "group_name"))
    sync.bucket = sync.fields(
        bucket=sync.counts[group], group=group, **size_of(argument(bound, 4, "converted_named_tensors"))
    )
    # As the engine says of what arrives by broadcast, whoever sends it.
    sync.bucket["transport"] = "nccl"
    sync.counts[group] += 1
    with timeline.phase("bucket_send", **sync.bucket):
        return call()


def around_send_tensors(call: Call, bound: Bound) -> Any:
    """A bucket is handed to the engine beside this rank, by one rank for all that the engine spans."""
    sync = current()
    if sync is None or argument(bound, 3, "ipc_gather_group") is None:
        return call()
    size = size_of(argument(bound, 0, "hf_named_tensors"))
    if not sync.is_gather_source:
        with sync.phase("bucket_hand_over", bucket=max(sync.counts["ready"] - 1, 0), **size):
            return call()
    engine = argument(bound, 1, "ipc_engine")
    index = next((i for i, other in enumerate(sync.updater.rollout_engines) if other is engine), None)
    calls = "calls of update_weights_from_tensor"
    before = sync.counts[calls]
    sync.bucket = sync.fields(bucket=sync.next_bucket(), engine=index, **size)
    span = timeline.begin("bucket_send", **sync.bucket)
    try:
        with span.inside():
            result = call()
    except BaseException:
        span.end()
        raise
    made = sync.counts[calls] - before
    sync.counts["handed"] += made
    if made:
        span.end()
    else:
        span.cancel()
    return result
