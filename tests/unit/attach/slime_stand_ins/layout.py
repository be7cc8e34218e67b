"""Stands for Megatron's layout: two tensor-parallel ranks, two with experts, one stage."""


def model_parallel_is_initialized():
    return False


def get_tensor_model_parallel_world_size():
    return 2


def get_expert_tensor_parallel_world_size():
    return 1


def get_expert_model_parallel_world_size():
    return 2


def get_pipeline_model_parallel_world_size():
    return 1


class Group:
    def size(self):
        return 2

    def rank(self):
        return 0


def get_expert_model_parallel_group():
    return Group()
