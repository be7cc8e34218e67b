"""Stands for a trainer rank."""

import stand_in_calls as ray
import stand_in_initialize as initialize
import stand_in_loss as loss
import stand_in_model as model
from stand_in_calls import dist
from stand_in_timer import Timer, timer


class TrainRayActor:
    def __init__(self, world_size, rank):
        self._world_size, self._rank = world_size, rank


class MegatronTrainRayActor(TrainRayActor):
    def init(self, args, role, with_ref=False):
        self.args, self.role = args, role
        initialize.init(args)
        Timer().start("train_wait")
        return 0

    def train(self, rollout_id, rollout_data_ref, external_data=None):
        with timer("data_preprocess"):
            data = dict(rollout_data_ref)
        if self.role == "critic":
            self.forward(loss.get_values)
        else:
            Timer().end("train_wait")
            with timer("train"):
                for prefix in ("ref_", ""):
                    with timer(f"{prefix}log_probs"):
                        self.forward(loss.get_log_probs, prefix)
                loss.compute_advantages_and_returns(self.args, data)
                with timer("actor_train"):
                    result = model.train(rollout_id, None, None)
            Timer().start("train_wait")
            return result
        loss.compute_advantages_and_returns(self.args, data)
        return model.train(rollout_id, None, None)

    def forward(self, f, prefix=""):
        model.forward_only(f, self.args, None, None, None, store_prefix=prefix)

    def save_model(self, rollout_id, force_sync=False):
        with timer("save_model"):
            return rollout_id

    def update_weights(self):
        if self.args.debug_train_only or self.args.debug_rollout_only:
            return None
        engines, lock, new = ray.get(self.rollout_manager.get_updatable_engines_and_lock.remote())
        if not engines:
            return None
        if new:
            self.weight_updater.connect_rollout_engines(engines, lock)
            dist.barrier()
        self.weight_updater.update_weights()
        return "done"
