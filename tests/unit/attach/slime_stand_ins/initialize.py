"""Stands for slime's setting up of Megatron."""

from stand_in_misc import load_function


def init(args):
    args.seen = args.custom_megatron_init_path
    if args.custom_megatron_init_path:
        load_function(args.custom_megatron_init_path)(args)
