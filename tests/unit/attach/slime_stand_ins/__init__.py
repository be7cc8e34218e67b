"""Stand-ins for slime, and for what of Ray, torch and Megatron it calls: our own small code of their shapes.

`load` puts them where the hooks look for the real ones.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

_MEGATRON = "slime.backends.megatron_utils"
_UPDATE = f"{_MEGATRON}.update_weight"
#: By file here, the module that it stands for; in the order in which slime's need each other.
NAMES = {
    "calls": "ray",
    "handles": "ray.actor",
    "layout": "megatron.core.parallel_state",
    "misc": "slime.utils.misc",
    "timer": "slime.observability.timer",
    "initialize": f"{_MEGATRON}.initialize",
    "loss": f"{_MEGATRON}.loss",
    "model": f"{_MEGATRON}.model",
    "distributed": f"{_UPDATE}.update_weight_from_distributed",
    "iterator": f"{_UPDATE}.hf_weight_iterator_direct",
    "tensor": f"{_UPDATE}.update_weight_from_tensor",
    "saver": f"{_MEGATRON}.hf_checkpoint_saver",
    "disk": f"{_UPDATE}.update_weight_from_disk",
    "delta": f"{_UPDATE}.update_weight_from_disk_delta",
    "actor": f"{_MEGATRON}.actor",
    "group": "slime.ray.actor_group",
    "manager": "slime.ray.rollout",
    "generate": "slime.rollout.sglang_rollout",
    "engine": "slime.backends.sglang_utils.sglang_engine",
}


def load(monkeypatch) -> dict[str, ModuleType]:
    """The stand-ins by file, in `sys.modules` under the names of the real ones until the test ends."""
    made = {}
    monkeypatch.setitem(sys.modules, "slime", ModuleType("slime"))
    for file, name in NAMES.items():
        path = Path(__file__).with_name(f"{file}.py")
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setitem(sys.modules, f"stand_in_{file}", module)
        spec.loader.exec_module(module)
        made[file] = module
    made["calls"].actor = made["handles"]
    return made


def names(phases):
    return [phase.name for phase in phases]


def inside(phases, name):
    """Names of the phases directly inside the first of that name."""
    outer = next(phase for phase in phases if phase.name == name)
    return [phase.name for phase in phases if phase.parent == outer.id]
