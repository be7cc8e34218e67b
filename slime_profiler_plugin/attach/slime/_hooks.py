"""What is done around each target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from slime_profiler_plugin.attach._targets import Target
from slime_profiler_plugin.attach._wrap import Around

from . import _disk, _driver, _engine, _gathers, _manager, _timers, _trainer, _updaters
from . import _targets as targets
from ._load_class import LOAD_CLASS, around_load_class

WRAPPED: Final[Mapping[Target, Around]] = {
    targets.TIMER_START: _timers.around_start,
    targets.TIMER_END: _timers.around_end,
    targets.ACTOR_INIT: _trainer.around_init,
    targets.ACTOR_TRAIN: _trainer.around_train,
    targets.ACTOR_UPDATE: _trainer.around_update,
    targets.ACTOR_SAVE: _trainer.around_save,
    targets.MEGATRON_INIT: _trainer.around_megatron_init,
    targets.FORWARD_ONLY: _trainer.around_forward_only,
    targets.TRAIN: _trainer.around_model_train,
    targets.TRAIN_STEP: _trainer.around_train_step,
    targets.ADVANTAGES: _trainer.around_advantages,
    **dict.fromkeys(targets.CONNECTS, _updaters.around_connect),
    **dict.fromkeys(targets.UPDATES, _updaters.around_update),
    targets.ACTOR_CALL: _updaters.around_actor_call,
    **dict.fromkeys(targets.CHUNKS, _updaters.around_chunk),
    targets.DIRECT_CHUNKS: _updaters.around_direct_chunk,
    targets.BUCKET: _updaters.around_bucket,
    targets.SEND: _updaters.around_send,
    targets.SEND_TENSORS: _updaters.around_send_tensors,
    targets.TP_GATHER: _gathers.around_tp_gather,
    targets.TP_GATHERS: _gathers.around_tp_gathers,
    targets.FULL_PARAMS: _gathers.around_full_params,
    targets.EP_GATHER: _gathers.around_ep_gather,
    targets.EP_SEND: _gathers.around_expert_batch,
    **dict.fromkeys(targets.CONVERTS, _gathers.around_convert),
    targets.CONVERT_CHUNK: _gathers.around_convert_chunk,
    targets.LAYOUT: _disk.around_layout,
    targets.WRITE: _disk.around_write,
    targets.FINALIZE: _disk.around_finalize,
    targets.MAKE_DISK: _disk.around_make,
    targets.MAKE_DELTA: _disk.around_make,
    targets.ENCODE: _disk.around_encode,
    targets.PUBLISH: _disk.around_publish,
    targets.METRICS: _disk.around_metrics,
    targets.ASYNC_TRAIN: _driver.around_async_train,
    targets.UPDATE_ALL: _driver.around_update,
    targets.RELOAD: _driver.around_reload,
    LOAD_CLASS: around_load_class,
    targets.ADDRESSES: _manager.around_addresses,
    targets.REWARD: _manager.around_reward,
    targets.REWARDS: _manager.around_reward,
    targets.ENGINE_MAKE: _engine.around_make,
    targets.ENGINE_INIT: _engine.around_init,
    targets.ENGINE_REQUEST: _engine.around_request,
}
#: Of functions that slime's modules reach through another's.
REACHED: Final[Mapping[Target, Around]] = {
    targets.ACTOR_BARRIER: _updaters.around_barrier,
    **dict.fromkeys(targets.BARRIERS, _updaters.around_barrier),
    **dict.fromkeys(targets.GETS, _updaters.around_get),
}
