"""Phases of the rollout manager, and profiler windows of its engines.

slime's class is an actor already where it is defined, so it travels by value: its methods are wrapped in the
actor itself, when that has loaded its class and before Ray looks at it.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.attach._targets import check_target
from slime_profiler_plugin.attach._wrap import Around, Bound, remember_state, wrapped

from . import _targets as targets
from ._engine import engine_index
from ._load_class import MANAGER_CLASS
from ._sync import Call, argument

if TYPE_CHECKING:
    from slime_profiler_plugin.attach.sglang.windows import EngineWindows

#: The manager's engines by index, and the rollout that it serves.
_urls: Final[dict[int, str]] = {}
_serving: Final[list[int]] = []
_windows: Final[list[EngineWindows]] = []


def wrap_methods(found: type) -> None:
    """Wrap each method of the class that is as expected."""
    holder: Any = SimpleNamespace(**{MANAGER_CLASS: found})
    for name, around in METHODS.items():
        target = targets.MANAGER[name]
        state = check_target(target, holder)
        remember_state(state)
        if state.status == "attached":
            setattr(found, name, wrapped(getattr(found, name), around, target.name))


def _around_make(call: Call, bound: Bound) -> Any:
    """The manager is made, and starts its engines."""
    timeline.start(role="rollout_manager", rank=0, world_size=1)
    external = getattr(argument(bound, 1, "args"), "rollout_external_engine_addrs", None) or ()
    for index, address in enumerate(external):
        _urls[index] = address if "://" in address else f"http://{address}"
    return call()


def _around_generate(call: Call, bound: Bound) -> Any:
    """From here on the manager is about a rollout; windows of its engines begin with it."""
    rollout = argument(bound, 1, "rollout_id")
    _serving[:] = [rollout]
    timeline.set_rollout(rollout)
    if timeline.on:
        if not _windows:
            from slime_profiler_plugin.attach.sglang.windows import EngineWindows

            _windows.append(EngineWindows())
        _windows[0].on_rollout(rollout, [url for _, url in sorted(_urls.items())])
    return call()


def _around_eval(call: Call, bound: Bound) -> Any:
    """Evaluation, which does not change what the manager is about."""
    rollout = argument(bound, 1, "rollout_id")
    before = list(_serving)
    _serving[:] = [rollout]
    try:
        with timeline.rollout(rollout), timeline.phase("eval"):
            return call()
    finally:
        _serving[:] = before


def _around_dispose(call: Call, _bound: Bound) -> Any:
    """The run is over. Ray ends the actor without letting it run any code of its own."""
    while _windows:
        _windows.pop().close()
    try:
        return call()
    finally:
        timeline.flush()


def _phase(name: str) -> Around:
    def around(call: Call, _bound: Bound) -> Any:
        with timeline.phase(name):
            return call()

    return around


METHODS: Final[dict[str, Around]] = {
    "__init__": _around_make,
    "generate": _around_generate,
    "eval": _around_eval,
    "_get_rollout_data": _phase("generate"),
    "_convert_samples_to_train_data": _phase("convert_samples"),
    "_split_train_data_by_dp": _phase("convert_samples"),
    "offload": _phase("offload"),
    "onload_weights": _phase("onload_weights"),
    "onload_kv": _phase("onload_kv"),
    "dispose": _around_dispose,
}


def around_addresses(call: Call, bound: Bound) -> Any:
    """Engines get their addresses: at first, and when they are started again."""
    result = call()
    arguments, gpus = bound.kwargs.get("args"), bound.kwargs.get("num_gpus_per_engine")
    started = {rank for rank, _ in bound.kwargs["rollout_engines"]}
    for rank, place in sorted(result[0].items(), reverse=True):  # of an engine's nodes the first counts
        if rank in started:
            _urls[engine_index(rank, arguments, gpus)] = _url(place["host"], place["port"])
    return result


def _url(host: str, port: int) -> str:
    """
    >>> _url("10.0.0.1", 15000), _url("fe80::1", 15000)
    ('http://10.0.0.1:15000', 'http://[fe80::1]:15000')
    """
    return f"http://[{host}]:{port}" if ":" in host and not host.startswith("[") else f"http://{host}:{port}"


async def around_reward(call: Call, bound: Bound) -> Any:
    """A sample is scored, or several together, in a task of its own."""
    samples = argument(bound, 1, "samples")
    count = len(samples) if isinstance(samples, list) else 1
    with contextlib.ExitStack() as stack:
        if _serving:
            stack.enter_context(timeline.rollout(_serving[0]))  # type: ignore[arg-type]
        stack.enter_context(timeline.phase("reward", samples=count))  # type: ignore[arg-type]
        return await call()
