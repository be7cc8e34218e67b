"""What of SGLang is wrapped, in the versions 0.5.13 to 0.5.23.

A call for an update arrives in the scheduler, at the same class in all of them. What receives and loads is
the model runner up to 0.5.15, and a part of it of its own in 0.5.23: each version lacks one of the two.
"""

from __future__ import annotations

from typing import Final

from slime_profiler_plugin.attach._targets import Target

_SCHEDULER: Final = "sglang.srt.managers.scheduler"
_CALLS: Final = "sglang.srt.managers.scheduler_components.weight_updater"
_PROFILER: Final = "sglang.srt.managers.scheduler_components.profiler_manager"
_RUNNER: Final = "sglang.srt.model_executor.model_runner"
_UPDATER: Final = "sglang.srt.model_executor.model_runner_components.weight_updater"

_RECEIVE: Final = "engine_receive"
_LOAD: Final = "engine_load"
_BROADCAST: Final = ("names", "dtypes", "shapes", "group_name", "load_format")
_TENSORS: Final = ("self", "named_tensors", "load_format")
_DISK: Final = ("self", "model_path", "load_format")


def _target(
    module: str, name: str, parameters: tuple[str, ...], *phases: str, optional: bool = False
) -> Target:
    return Target("sglang", module, name, parameters, phases, optional)


SCHEDULER: Final = _target(
    _SCHEDULER,
    "Scheduler.__init__",
    ("self", "server_args"),
    *(_RECEIVE, _LOAD, "engine_flush", "engine_pull", "profiler_export"),
)
FLUSH: Final = _target(_SCHEDULER, "Scheduler.flush_cache", ("self",), "engine_flush")

_MANAGER: Final = "SchedulerWeightUpdaterManager"
CALL_DISK: Final = _target(_CALLS, f"{_MANAGER}.update_weights_from_disk", ("self", "recv_req"), _LOAD)
CALL_BROADCAST: Final = _target(
    _CALLS, f"{_MANAGER}.update_weights_from_distributed", ("self", "recv_req"), _RECEIVE, _LOAD
)
CALL_TENSORS: Final = _target(
    _CALLS, f"{_MANAGER}.update_weights_from_tensor", ("self", "recv_req"), _RECEIVE, _LOAD
)
#: slime's patch of SGLang adds it.
CALL_PULL: Final = _target(
    _CALLS, f"{_MANAGER}.pull_weights", ("self", "recv_req"), "engine_pull", optional=True
)

RUNNER_DISK: Final = _target(_RUNNER, "ModelRunner.update_weights_from_disk", _DISK, _LOAD, optional=True)
RUNNER_BROADCAST: Final = _target(
    _RUNNER,
    "ModelRunner.update_weights_from_distributed",
    ("self", *_BROADCAST),
    *(_RECEIVE, _LOAD),
    optional=True,
)
RUNNER_TENSORS: Final = _target(
    _RUNNER, "ModelRunner.update_weights_from_tensor", _TENSORS, _RECEIVE, _LOAD, optional=True
)

UPDATER_DISK: Final = _target(_UPDATER, "WeightUpdater.update_weights_from_disk", _DISK, _LOAD, optional=True)
UPDATER_RECEIVE: Final = _target(
    _UPDATER,
    "WeightUpdater.receive_weights_from_distributed",
    ("self", *_BROADCAST),
    _RECEIVE,
    optional=True,
)
UPDATER_LOAD: Final = _target(
    _UPDATER,
    "WeightUpdater.load_weights_from_distributed",
    ("self", "named_tensors"),
    _LOAD,
    optional=True,
)
UPDATER_TENSORS: Final = _target(
    _UPDATER, "WeightUpdater.update_weights_from_tensor", _TENSORS, _RECEIVE, _LOAD, optional=True
)

PROFILE_START: Final = _target(
    _PROFILER, "SchedulerProfilerManager._start_profile", ("self", "stage"), "profiler_export"
)
PROFILE_STOP: Final = _target(
    _PROFILER, "SchedulerProfilerManager._stop_profile", ("self", "stage"), "profiler_export"
)

TARGETS: Final = (
    SCHEDULER,
    FLUSH,
    CALL_DISK,
    CALL_BROADCAST,
    CALL_TENSORS,
    CALL_PULL,
    RUNNER_DISK,
    RUNNER_BROADCAST,
    RUNNER_TENSORS,
    UPDATER_DISK,
    UPDATER_RECEIVE,
    UPDATER_LOAD,
    UPDATER_TENSORS,
    PROFILE_START,
    PROFILE_STOP,
)
