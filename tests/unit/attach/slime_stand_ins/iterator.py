"""Stands for the iterator over all parameters of all stages."""

from types import SimpleNamespace


def all_gather_params_async(param_infos_and_params):
    return [parameter for _, parameter in param_infos_and_params]


def _get_megatron_full_params(megatron_local_param_infos, megatron_local_weights):
    return all_gather_params_async(
        [(info, megatron_local_weights[info.name]) for info in megatron_local_param_infos]
    )


class HfWeightIteratorDirect:
    def get_hf_weight_chunks(self, megatron_local_weights, param_info_buckets=None):
        for name in megatron_local_weights:
            infos = [SimpleNamespace(name=name)]
            full = _get_megatron_full_params(infos, megatron_local_weights)
            yield self._convert_to_hf_named_tensors(full, infos)

    def _convert_to_hf_named_tensors(self, megatron_full_params, param_infos):
        return [
            (info.name, full) for info, full in zip(param_infos, megatron_full_params, strict=True) if full
        ]
