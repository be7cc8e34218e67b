"""Phases of a sync over disk: files of whole weights, differences, and the user's own step behind them."""

from __future__ import annotations

from typing import Any, Final

from slime_profiler_plugin.attach._wrap import Bound, wrapped

from ._sync import Call, argument, current, size_of

_HOOK: Final = "_post_write_hook"


def around_layout(call: Call, _bound: Bound) -> Any:
    """Which ranks write, and what of it is this one's."""
    found = call()
    sync = current()
    if sync is not None:
        nodes, node, writes, _ = found
        sync.layout = (nodes, node, writes)
    return found


def around_write(call: Call, bound: Bound) -> Any:
    """One file; outside of a sync it is a part of saving the model."""
    sync = current()
    tensors = argument(bound, 1, "named_tensors")
    if sync is None or not tensors or not bound.args[0].enabled:
        return call()
    with sync.phase("shard_write", bucket=argument(bound, 2, "shard_idx"), **size_of(tensors)):
        return call()


def around_finalize(call: Call, _bound: Bound) -> Any:
    """All ranks learn which files there are, and give them their names."""
    sync = current()
    if sync is None:
        return call()
    with sync.phase("shard_finalize"):
        return call()


def around_make(call: Call, bound: Bound) -> Any:
    """An updater is made; a hook of the user's behind the writing, if it has one, is a phase."""
    result = call()
    updater = bound.args[0]
    hook = getattr(updater, _HOOK, None)
    if hook is not None:
        setattr(updater, _HOOK, wrapped(hook, _around_post_write, "--custom-update-weight-post-write-path"))
    return result


def _around_post_write(call: Call, _bound: Bound) -> Any:
    sync = current()
    if sync is None:
        return call()
    with sync.phase("post_write"):
        return call()


def around_encode(call: Call, bound: Bound) -> Any:
    """What has changed is found and compressed, while the buckets are gathered that it is in."""
    sync = current()
    if sync is None or not sync.is_source:
        return call()
    span = sync.begin("delta_encode")
    updater = bound.args[0]
    try:
        with span.inside():
            return call()
    finally:
        span.end(
            bytes=getattr(updater, "total_bytes", None),
            changed_bytes=getattr(updater, "changed_bytes", None),
            tensors=len(getattr(updater, "_snapshot", ())),
        )


def around_publish(call: Call, bound: Bound) -> Any:
    """This rank's file of differences is written, and rank 0's index; a rank may have nothing to write."""
    sync = current()
    updater = bound.args[0]
    changed = getattr(updater, "_delta", None)
    if sync is None or not changed:
        return call()
    span = sync.begin("delta_publish", tensors=len(changed))
    try:
        with span.inside():
            return call()
    finally:
        span.end(bytes=getattr(updater, "wire_bytes", None))


def around_metrics(call: Call, _bound: Bound) -> Any:
    """All ranks add up what they wrote; the engines have it by then."""
    sync = current()
    if sync is None or sync.completing.is_open:
        return call()
    with sync.phase("sync_complete"):
        return call()
