"""Stands for `ray` and for collectives: what is called is done at once, and noted in `LOG`."""

LOG = []


class Ref:
    def __init__(self, value):
        self.value = value


def get(object_refs):
    refs = object_refs if isinstance(object_refs, list) else [object_refs]
    values = [ref.value for ref in refs]
    LOG.append("get")
    for value in values:
        if isinstance(value, Exception):
            raise value
    return values if isinstance(object_refs, list) else values[0]


class Tensor:
    def __init__(self, nbytes=4, tensor_model_parallel=False):
        self.nbytes = nbytes
        self.tensor_model_parallel = tensor_model_parallel


class Nothing(Tensor):
    """What another rank has."""

    def __bool__(self):
        return False


class Collectives:
    """Stands for `torch.distributed`."""

    def barrier(self, *args, **kwargs):
        LOG.append("barrier")

    def get_rank(self):
        return 0


dist = Collectives()
