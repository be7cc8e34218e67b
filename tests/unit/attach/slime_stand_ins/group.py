"""Stands for the driver's handle of all trainer ranks."""

import stand_in_calls as ray


class RayTrainGroup:
    def __init__(self, engines):
        self.engines = engines

    def async_train(self, rollout_id, rollout_data_ref, external_data=None):
        return [rollout_id]

    def update_weights(self):
        return "sent"

    def _reload_rollout_weights_from_disk(self, disk_weight_dir, weight_version):
        engines = self.engines
        ray.get([engine.pull_weights.remote(int(weight_version)) for engine in engines])
        ray.get([engine.pause_generation.remote() for engine in engines])
        ray.get([engine.flush_cache.remote() for engine in engines])
        ray.get([engine.update_weights_from_disk.remote(model_path=disk_weight_dir) for engine in engines])
        ray.get([engine.continue_generation.remote() for engine in engines])
