"""Loaded at the start of every process of a job: lets slime find a CPU where it looks for an accelerator.

It waits until slime's own registry of accelerators is imported, and then registers one, which is what that
registry is for. Nothing of slime, Megatron or Ray is edited.
"""

import contextlib
import importlib.abc
import importlib.util
import os
import sys

import no_triton

#: What is imported, and the module of ours that is told of it then.
_AFTER = {"slime.utils.accelerator": "cpu_accelerator", "ray.actor": "seen_calls"}


class _Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, with what ours do about it."""

    def __init__(self, loader: importlib.abc.Loader, name: str) -> None:
        self._loader, self._name = loader, name

    def create_module(self, spec: object) -> object:
        return self._loader.create_module(spec)  # type: ignore[arg-type]

    def exec_module(self, module: object) -> None:
        around = no_triton.stand_in() if self._name in no_triton.NEED_IT else contextlib.nullcontext()
        with around:
            self._loader.exec_module(module)  # type: ignore[arg-type]
        if self._name in _AFTER:
            importlib.import_module(_AFTER[self._name]).install()


class _Waiting(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self._waited_for = {*_AFTER, *no_triton.NEED_IT}

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> object:
        if name not in self._waited_for:
            return None
        self._waited_for.discard(name)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, name)
        return spec


if os.environ.get("SLIME_TESTS_SEEN"):
    sys.meta_path.insert(0, _Waiting())
