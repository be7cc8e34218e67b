"""Every hook of slime against the source of a checkout (``SLIME_CHECKOUT``), which is not imported."""

from __future__ import annotations

import ast
import os
from functools import cache
from pathlib import Path

import pytest

from slime_profiler_plugin.attach import _frameworks
from slime_profiler_plugin.attach.slime import TARGETS, _hooks
from slime_profiler_plugin.attach.slime import _targets as targets
from slime_profiler_plugin.phases import BUILT_IN

OF_SLIME = [target for target in TARGETS if target.framework == "slime"]
#: Phases of the design that slime's hooks are there for.
# fmt: off
PHASES = {
    "data_preprocess", "ref_log_probs", "teacher_log_probs", "log_probs", "values", "advantages",
    "train_step", "train_wait", "sleep", "wake_up", "save_model", "weight_sync", "connect_engines",
    "pause_generation", "flush_cache", "tp_gather", "ep_gather", "pp_gather", "weight_convert",
    "bucket_ready", "bucket_lock_wait", "bucket_hand_over", "bucket_send", "bucket_ack",
    "bucket_lock_release", "barrier", "engine_wait", "continue_generation", "sync_complete",
    "shard_write", "shard_finalize", "post_write", "delta_encode", "delta_publish", "generate", "eval",
    "reward", "convert_samples", "offload", "onload_weights", "onload_kv", "trainer_init",
    "train_rollout", "actor_train", "engine_request",
}
# fmt: on


@pytest.fixture(scope="module")
def checkout() -> Path:
    folder = os.environ.get("SLIME_CHECKOUT")
    if not folder:
        pytest.skip("SLIME_CHECKOUT names no checkout of slime")
    return Path(folder)


@cache
def parse(checkout: Path, module: str) -> ast.Module | None:
    base = checkout / module.replace(".", "/")
    path = next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)
    return None if path is None else ast.parse(path.read_text(encoding="utf-8"))


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    arguments = node.args
    return tuple(a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs])


def find(checkout: Path, module: str, name: str) -> tuple[str, ...] | str | None:
    """The parameters of what `name` is in the module; the other module that it is reached through."""
    tree = parse(checkout, module)
    assert tree is not None, f"there is no {module}"
    outer, _, inner = name.partition(".")
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if inner and (alias.asname or alias.name) == outer:
                    return alias.name
        elif isinstance(node, ast.ImportFrom) and outer in [a.asname or a.name for a in node.names]:
            parts = module.split(".")[: -node.level] if node.level else []
            return find(checkout, ".".join([*parts, *([node.module] if node.module else [])]), name)
        elif isinstance(node, ast.ClassDef) and node.name == outer:
            for method in node.body:
                if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) and method.name == inner:
                    return parameters(method)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            return parameters(node)
    return None


@pytest.mark.parametrize("target", OF_SLIME, ids=lambda target: f"{target.module}.{target.name}")
def test_target_is_there_with_its_parameters(checkout, target):
    found = find(checkout, target.module, target.name)
    if target.name in ("ray.get", "dist.barrier"):
        assert found == {"ray": "ray", "dist": "torch.distributed"}[target.name.partition(".")[0]]
        return
    assert isinstance(found, tuple), f"{target.module}.{target.name} is not there"
    rest = iter(found)
    assert all(name in rest for name in target.parameters or ()), found


def test_parameters_stand_where_the_hooks_look_for_them(checkout):
    """Those that a caller may give by position, as `argument` counts them."""
    places = {
        targets.FORWARD_ONLY: {"f": 0, "store_prefix": 5},
        targets.TRAIN: {"rollout_id": 0},
        targets.TRAIN_STEP: {"step_id": 2},
        targets.SEND: {"group_name": 0, "converted_named_tensors": 4},
        targets.BUCKET: {"converted_named_tensors": 1},
        targets.WRITE: {"named_tensors": 1, "shard_idx": 2},
        targets.RELOAD: {"weight_version": 2},
        targets.ACTOR_INIT: {"args": 1, "role": 2},
        targets.ENGINE_MAKE: {"rank": 2},
        targets.ENGINE_REQUEST: {"endpoint": 1, "payload": 2},
        targets.REWARDS: {"samples": 1},
    }
    for target, wanted in places.items():
        found = find(checkout, target.module, target.name)
        assert {name: found.index(name) for name in wanted} == wanted, target.name


def test_each_phase_has_a_target():
    covered = {phase for target in TARGETS for phase in target.phases}
    assert covered >= PHASES
    assert set(BUILT_IN) >= PHASES


def test_each_target_has_a_hook_and_the_doctor_sees_it():
    manager = set(targets.MANAGER.values())
    hooked = set(_hooks.WRAPPED) | set(_hooks.REACHED) | manager
    assert set(TARGETS) - hooked == {targets.PARSE}
    assert set(TARGETS) <= set(_frameworks.targets())
    assert len(set(TARGETS)) == len(TARGETS)


def test_what_else_is_read_of_slimes_objects_is_there(checkout):
    """Attributes that no signature shows."""
    for module, names in {
        targets.SEND.module: ["_is_pp_src_rank", "_group_name", "weight_version"],
        targets.SEND_TENSORS.module: [
            "_ipc_gather_src",
            "_is_distributed_src_rank",
            "rollout_engines",
            "rank",
        ],
        targets.ENCODE.module: ["_baseline_captured", "_delta", "total_bytes", "changed_bytes", "wire_bytes"],
        targets.MAKE_DISK.module: ["_post_write_hook", "weight_version"],
        targets.ENGINE_INIT.module: ["rank", "args", "num_gpus_per_engine", "node_rank"],
        targets.ACTOR_INIT.module: ["weight_updater", "args"],
        "slime.ray.train_actor": ["_rank", "_world_size"],
    }.items():
        tree = parse(checkout, module)
        assigned = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        assert set(names) <= assigned, module
