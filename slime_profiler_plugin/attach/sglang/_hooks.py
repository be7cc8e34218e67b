"""What is done around each target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from slime_profiler_plugin.attach._targets import Target
from slime_profiler_plugin.attach._wrap import Around

from . import _exports, _place, _updates
from . import _targets as targets

HOOKS: Final[Mapping[Target, Around]] = {
    targets.SCHEDULER: _place.around_scheduler,
    targets.FLUSH: _updates.around_flush,
    targets.CALL_DISK: _updates.around_call_disk,
    targets.CALL_BROADCAST: _updates.around_call_broadcast,
    targets.CALL_TENSORS: _updates.around_call_tensors,
    targets.CALL_PULL: _updates.around_pull,
    targets.RUNNER_DISK: _updates.around_disk,
    targets.RUNNER_BROADCAST: _updates.around_receive_and_load,
    targets.RUNNER_TENSORS: _updates.around_tensors,
    targets.UPDATER_DISK: _updates.around_disk,
    targets.UPDATER_RECEIVE: _updates.around_receive,
    targets.UPDATER_LOAD: _updates.around_load,
    targets.UPDATER_TENSORS: _updates.around_tensors,
    targets.PROFILE_START: _exports.around_start,
    targets.PROFILE_STOP: _exports.around_stop,
}
