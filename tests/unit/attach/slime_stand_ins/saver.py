"""Stands for the writing of checkpoints: of two nodes this is the first, whose writer this rank is."""

from stand_in_iterator import HfWeightIteratorDirect


def _get_node_save_layout(args):
    return 2, 0, args.is_source, [0, 1]


class _SafetensorShardWriter:
    def __init__(self, enabled):
        self.enabled = enabled

    def write(self, named_tensors, shard_idx):
        pass


def _finalize_distributed_shards(path, local_state):
    pass


def save(args, path, weights):
    nodes, node, writes, _ = _get_node_save_layout(args)
    writer = _SafetensorShardWriter(writes)
    for number, chunk in enumerate(HfWeightIteratorDirect().get_hf_weight_chunks(weights)):
        if writes and number % nodes == node:
            writer.write(chunk, shard_idx=number)
    _finalize_distributed_shards(path, None)
