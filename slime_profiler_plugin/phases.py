"""The vocabulary: every phase the plugin itself emits, and how users add their own.

A phase is a named span of work in one process. `parents` are the phases it may stand
directly inside; a phase elsewhere is recorded all the same. Each record file carries the
definitions it uses, so a reader needs no copy of this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")

#: The domain that phases are ranges of, for tools that read NVTX.
NVTX_DOMAIN: Final = "slime"

ROLES: Final = (
    "driver",
    "actor",
    "critic",
    "rollout_manager",
    "engine",
    "engine_client",
    "router",
    "reward",
)


def role_order(role: str | None) -> tuple[int, str]:
    """Sort key: as in `ROLES`, then roles of the user's own by name."""
    return (ROLES.index(role) if role in ROLES else len(ROLES), role or "")


class PhaseDefinition(NamedTuple):
    """A phase name, where it may stand, who emits it, and one line on what it is."""

    name: str
    parents: tuple[str, ...]
    roles: tuple[str, ...]
    doc: str


_TRAINER: Final = ("actor", "critic")
_SYNC: Final = ("actor",)
_ENGINE: Final = ("engine", "engine_client")
_ROLLOUT: Final = ("rollout_manager",)
_DRIVER: Final = ("driver",)
#: Over disk the driver has the engines reload, so a part of the sync is its own.
_SYNC_OR_DRIVER: Final = (*_SYNC, *_DRIVER)


def _built_in() -> Iterator[PhaseDefinition]:
    def define(
        roles: tuple[str, ...], parents: tuple[str, ...], phases: dict[str, str]
    ) -> Iterator[PhaseDefinition]:
        for name, doc in phases.items():
            yield PhaseDefinition(name, parents, roles, doc)

    yield from define(
        _TRAINER,
        (),
        {
            "trainer_init": "Set up Megatron's groups, make the model and load it.",
            "train_rollout": "All that a trainer rank does with a rollout, but for making its data ready.",
            "actor_train": "The optimizer steps of a rollout.",
            "data_preprocess": "Turn rollout samples into this rank's training batches.",
            "ref_log_probs": "Log-probabilities under the reference model.",
            "teacher_log_probs": "Log-probabilities under the teacher model.",
            "log_probs": "Log-probabilities under the model being trained.",
            "values": "Values under the critic.",
            "advantages": "Advantages and returns.",
            "train_step": "One optimizer step, all its micro-batches.",
            "train_wait": "Waiting for the next rollout's data.",
            "sleep": "Give device memory to the colocated engines.",
            "wake_up": "Take device memory back.",
            "save_model": "Write a checkpoint.",
            "profiler_export": "Write a torch.profiler window; holds the interpreter lock.",
        },
    )
    yield from define(
        _TRAINER,
        ("train_step", "ref_log_probs", "teacher_log_probs", "log_probs", "values"),
        {
            "forward_backward": "Forward and backward of all micro-batches of a step.",
        },
    )
    yield from define(
        _TRAINER,
        ("train_step",),
        {
            "zero_grad": "Set the gradients back to zero.",
            "optimizer": "Update the parameters from the gradients.",
        },
    )
    yield from define(
        _TRAINER,
        ("forward_backward",),
        {
            "forward": "Forward of one micro-batch.",
            "backward": "Backward of one micro-batch.",
            "pp_send": "Send activations or gradients to a pipeline neighbour.",
            "pp_recv": "Wait for activations or gradients from a pipeline neighbour.",
            "pp_send_recv": "Send to one pipeline neighbour and wait for another, in one call.",
            "finalize_grads": "What is done with the gradients between the last backward and the optimizer.",
        },
    )
    yield from define(
        _TRAINER,
        ("forward_backward", "finalize_grads"),
        {
            "grad_sync": "Reduce gradients over the data-parallel ranks; wait for it, where it overlaps.",
        },
    )
    yield from define(
        _TRAINER,
        ("finalize_grads",),
        {
            "embedder_grad_sync": "Reduce a diffusion model's embedder gradients over the pipeline ranks.",
            "non_tp_grad_sync": "Reduce gradients of parameters that tensor parallelism does not split.",
            "embedding_grad_sync": "Reduce embedding gradients over the first and last pipeline stages.",
        },
    )
    yield from define(
        _TRAINER,
        ("grad_sync", "grad_sync_finish", "backward"),
        {
            "grad_sync_start": "Begin to reduce a group of gradients; all of it, where nothing overlaps.",
        },
    )
    yield from define(
        _TRAINER,
        ("grad_sync",),
        {
            "grad_sync_finish": "Wait until a group of gradients is reduced.",
        },
    )
    yield from define(
        _TRAINER,
        ("param_gather", "param_sync_finish", "forward_backward"),
        {
            "param_sync_start": "Begin to gather a group of parameters; all of it, where nothing overlaps.",
        },
    )
    yield from define(
        _TRAINER,
        ("forward",),
        {
            "param_sync_finish": "Wait until a group of parameters is gathered.",
        },
    )
    yield from define(
        _TRAINER,
        ("optimizer",),
        {
            "optimizer_copy_grads": "Copy the model's gradients to the optimizer's precision.",
            "optimizer_check_inf": "Undo the loss scale and look for infinities.",
            "optimizer_grad_norm": "The norm of all gradients, over all ranks.",
            "optimizer_clip": "Scale the gradients down to the largest norm allowed.",
            "optimizer_count_zeros": "Count the gradients that are zero.",
            "optimizer_inner_step": "The optimizer's own arithmetic.",
            "optimizer_copy_params": "Copy the optimizer's parameters to the model's precision.",
            "param_gather": "Gather the parameters that a distributed optimizer has updated.",
        },
    )
    yield from define(
        _TRAINER,
        ("forward", "backward"),
        {
            "ep_dispatch": "Send tokens to the ranks that hold their experts.",
            "ep_combine": "Bring the experts' answers back to the tokens' ranks.",
        },
    )
    yield from define(
        _SYNC_OR_DRIVER,
        (),
        {
            "weight_sync": "One weight synchronisation, from first gather to last acknowledgement.",
        },
    )
    yield from define(
        _SYNC,
        ("weight_sync",),
        {
            "connect_engines": "Set up the group or channel that weights travel over.",
        },
    )
    yield from define(
        _SYNC_OR_DRIVER,
        ("weight_sync",),
        {
            "pause_generation": "Ask the engines to stop generating.",
            "flush_cache": "Ask the engines to drop their key-value caches.",
        },
    )
    yield from define(
        _SYNC,
        ("weight_sync",),
        {
            "tp_gather": "Gather a tensor-parallel parameter.",
            "pp_gather": "Fetch the parameters that other pipeline stages have.",
            "ep_gather": "Gather expert-parallel parameters.",
            "weight_convert": "Convert parameters to the engine's names and layout.",
            "bucket_ready": "Fill one bucket: until its tensors can be sent.",
            "bucket_lock_wait": "Wait for the right to use the engines' channel.",
            "bucket_hand_over": "Give this rank's part of a bucket to the rank that sends it.",
            "bucket_send": "Send one bucket.",
            "bucket_ack": "Wait until the engines say they have loaded a bucket.",
            "bucket_lock_release": "Give back the right to use the engines' channel.",
            "barrier": "Wait for the other trainer ranks.",
        },
    )
    yield from define(
        _SYNC_OR_DRIVER,
        ("weight_sync",),
        {
            "engine_wait": "Wait until engines, or who manages them, have done what they were asked.",
            "continue_generation": "Ask the engines to go on generating.",
            "sync_complete": "Last bookkeeping: every engine has the new weights.",
        },
    )
    yield from define(
        _SYNC,
        ("weight_sync",),
        {
            "shard_write": "Write one file of weights.",
            "shard_finalize": "Agree with all ranks on the files of a version, and give them their names.",
            "post_write": "What the user has done with files of weights before the engines look for them.",
            "delta_encode": "Encode the difference to the last published weights.",
            "delta_publish": "Write and announce a difference.",
        },
    )
    yield from define(
        _ENGINE,
        (),
        {
            "engine_receive": "Receive one bucket.",
            "engine_load": "Copy received weights into the model.",
            "engine_pull": "Fetch published weights.",
            "engine_flush": "Drop the key-value cache.",
        },
    )
    yield from define(
        ("engine_client",),
        (),
        {
            "engine_request": "A request to an engine's server, until it is answered.",
        },
    )
    yield from define(
        _ROLLOUT + _DRIVER,
        (),
        {
            "generate": "Generate the samples of a rollout.",
            "eval": "Generate and score evaluation samples.",
            "offload": "Release the engines' device memory.",
            "onload_weights": "Give the engines memory for weights.",
            "onload_kv": "Give the engines memory for key-value caches.",
        },
    )
    yield from define(
        (*_ROLLOUT, "reward"),
        (),
        {
            "reward": "Score samples.",
        },
    )
    yield from define(
        _ROLLOUT,
        (),
        {
            "convert_samples": "Turn samples into training data.",
        },
    )


#: Built-in definitions by name. Never changed at run time.
BUILT_IN: Final[dict[str, PhaseDefinition]] = {d.name: d for d in _built_in()}
#: Definitions that users added in this process.
_added: dict[str, PhaseDefinition] = {}


def define_phase(
    name: str, *, parents: tuple[str, ...] = (), roles: tuple[str, ...] = (), doc: str
) -> PhaseDefinition:
    """Add a phase of your own.

    Defining the same thing twice is harmless. Raises `ValueError` for a name that is not
    snake_case, that is built in, or that stands for something else already.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"phase name {name!r} is not snake_case (a-z, 0-9, _)")
    new = PhaseDefinition(name, parents, roles, doc)
    if name in BUILT_IN:
        raise ValueError(f"phase {name!r} is built in")
    if _added.setdefault(name, new) != new:
        raise ValueError(f"phase {name!r} is already defined differently: {_added[name]}")
    return new


def phase_group(name: str) -> str:
    """Which part of the loop a phase belongs to: ``trainer``, ``sync``, ``engine``, ``rollout`` or ``user``.

    >>> [phase_group(n) for n in ("backward", "bucket_send", "engine_load", "generate", "my_own")]
    ['trainer', 'sync', 'engine', 'rollout', 'user']
    """
    definition = BUILT_IN.get(name)
    if definition is None:
        return "user"
    if "weight_sync" in (name, *definition.parents):
        return "sync"
    for role, group in (("engine", "engine"), ("rollout_manager", "rollout")):
        if role in definition.roles:
            return group
    return "trainer"


def find_definition(name: str) -> PhaseDefinition | None:
    """The definition of `name`, built in or added."""
    return BUILT_IN.get(name) or _added.get(name)
