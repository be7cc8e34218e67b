"""Phases of a weight update: what the scheduler is asked for, and what receives and loads below it.

The request knows the version and the group, the functions below it the times: the scheduler's call says
what is going on, they record it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from slime_profiler_plugin._timeline import Span, timeline
from slime_profiler_plugin.attach._wrap import Bound, wrapped

from . import _sizes as sizes

Call = Callable[[], Any]

#: As the sender calls them.
_BROADCAST: Final = "nccl"
_TENSORS: Final = "ipc"
_DISK: Final = "disk"


class Update:
    """One request: the fields of its phases, and the receiving that is going on."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.receive: Span | None = None

    def begin_receive(self) -> None:
        """From now on it receives."""
        self.receive = timeline.begin("engine_receive", **self.fields)

    def end_receive(self, **more: Any) -> None:
        """No longer; nothing when it does not receive."""
        receive, self.receive = self.receive, None
        if receive is not None:
            receive.end(**more)


_current: Final[ContextVar[Update | None]] = ContextVar("update", default=None)


class Ordinals:
    """Which call of a version and group one is.

    >>> count = Ordinals()
    >>> [count.next("1", "a"), count.next("1", "b"), count.next("1", "a"), count.next("2", "a")]
    [0, 0, 1, 0]
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[str | None, int]] = {}

    def next(self, version: str | None, group: str) -> int:
        """One more call."""
        known, number = self._last.get(group, (version, -1))
        number = number + 1 if known == version else 0
        self._last[group] = (version, number)
        return number


_ordinals: Final = Ordinals()


def around_call_disk(call: Call, bound: Bound) -> Any:
    """A request to load a folder."""
    return _update(call, {"transport": _DISK, **_version(_request(bound))})


def around_call_broadcast(call: Call, bound: Bound) -> Any:
    """A request to take part in a broadcast."""
    request = _request(bound)
    group = str(request.group_name)
    fields = {
        "transport": _BROADCAST,
        "group": group,
        "bucket": _ordinals.next(request.weight_version, group),
        **_version(request),
        **sizes.count_announced(request.dtypes, request.shapes),
    }
    return _update(call, fields)


def around_call_tensors(call: Call, bound: Bound) -> Any:
    """A request that brings tensors, or handles of them, with it: they are opened first."""
    request = _request(bound)
    fields = {
        "transport": _TENSORS,
        "bucket": _ordinals.next(request.weight_version, ""),
        **_version(request),
    }
    return _update(call, fields, receives=True)


def around_pull(call: Call, bound: Bound) -> Any:
    """A request to fetch what was published."""
    version = str(_request(bound).target_version)
    with timeline.phase("engine_pull", weight_version=version):
        return call()


def around_flush(call: Call, _bound: Bound) -> Any:
    """The cache is dropped."""
    update = _current.get()
    with timeline.phase("engine_flush", **_select(update, "weight_version", "transport", "bucket")):
        return call()


def around_disk(call: Call, bound: Bound) -> Any:
    """A folder is read and loaded at once."""
    update = _current.get()
    if update is None:
        return call()
    with timeline.phase("engine_load", **update.fields, **sizes.count_model(_model(bound.args[0]))):
        return call()


def around_receive_and_load(call: Call, bound: Bound) -> Any:
    """One function up to 0.5.15: what it receives is there when the model is asked to load it."""
    update = _current.get()
    if update is None:
        return call()
    with _loading(update, _model(bound.args[0])):
        update.begin_receive()
        return call()


def around_receive(call: Call, _bound: Bound) -> Any:
    """Since 0.5.23."""
    update = _current.get()
    if update is None:
        return call()
    with timeline.phase("engine_receive", **update.fields):
        return call()


def around_load(call: Call, _bound: Bound) -> Any:
    """Since 0.5.23."""
    update = _current.get()
    if update is None:
        return call()
    with timeline.phase("engine_load", **update.fields):
        return call()


def around_tensors(call: Call, bound: Bound) -> Any:
    """The tensors that came with a request are open."""
    update = _current.get()
    if update is None:
        return call()
    given = bound.kwargs.get("named_tensors", bound.args[1] if len(bound.args) > 1 else ())
    size = sizes.count_given(given)
    update.end_receive(**size)
    with timeline.phase("engine_load", **update.fields, **size):
        return call()


def _update(call: Call, fields: dict[str, Any], *, receives: bool = False) -> Any:
    update = Update(fields)
    token = _current.set(update)
    try:
        if receives:
            update.begin_receive()
        return call()
    finally:
        _current.reset(token)
        update.end_receive()


@contextmanager
def _loading(update: Update, model: Any) -> Iterator[None]:
    """Within it, `model.load_weights` ends the receiving and is a phase.

    A shadow in the instance's own dict; what stood there is put back.
    """

    def around(call: Call, _bound: Bound) -> Any:
        update.end_receive()
        with timeline.phase("engine_load", **update.fields):
            return call()

    own, name = vars(model), "load_weights"
    stood_there, before = name in own, own.get(name)
    own[name] = wrapped(model.load_weights, around, "a model's load_weights")
    try:
        yield
    finally:
        if stood_there:
            own[name] = before
        else:
            own.pop(name, None)


def _request(bound: Bound) -> Any:
    return bound.args[1] if len(bound.args) > 1 else bound.kwargs["recv_req"]


def _version(request: Any) -> dict[str, str]:
    version = getattr(request, "weight_version", None)
    return {} if version is None else {"weight_version": str(version)}


def _select(update: Update | None, *names: str) -> dict[str, Any]:
    return {} if update is None else {name: update.fields[name] for name in names if name in update.fields}


def _model(owner: Any) -> Any:
    """Of a model runner, since 0.5.23 of its part that updates weights."""
    get_model = getattr(owner, "get_model", None)
    return owner.model if get_model is None else get_model()
