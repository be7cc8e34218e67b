"""Waiting for a module changes nothing of how it is found and loaded, whoever else has a hand in that."""

import importlib
import importlib.util
import sys
import types
from importlib.machinery import SourceFileLoader

import pytest

from slime_profiler_plugin.attach._after_import import after_import, forget_all

SOURCE = """
LOADERS = type(__loader__).__name__, type(__spec__.loader).__name__
"""


@pytest.fixture
def name(tmp_path, monkeypatch):
    (tmp_path / "awaited_example.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    yield "awaited_example"
    forget_all()
    sys.modules.pop("awaited_example", None)


class Own:
    """A loader around another one."""

    def __init__(self, inner):
        self.inner = inner

    def create_module(self, spec):
        return self.inner.create_module(spec)

    def exec_module(self, module):
        self.inner.exec_module(module)


class Asking:
    """A finder that asks all others, as ours does."""

    def find_spec(self, name, path=None, target=None):
        if name != "awaited_example":
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = Own(spec.loader)
                return spec
        return None


class AskingOnce(Asking):
    """One that asks Python, and stays silent meanwhile."""

    is_asking = False

    def find_spec(self, name, _path=None, _target=None):
        if name != "awaited_example" or self.is_asking:
            return None
        self.is_asking = True
        spec = importlib.util.find_spec(name)
        self.is_asking = False
        spec.loader = Own(spec.loader)
        return spec


@pytest.mark.parametrize("place", [0, 1], ids=["before ours", "behind ours"])
@pytest.mark.parametrize("finder", [Asking, AskingOnce])
def test_a_finder_that_replaces_loaders_keeps_its_own(finder, place, name):
    seen = []
    after_import(name, seen.append)
    sys.meta_path.insert(place, finder())
    module = importlib.import_module(name)
    assert module.LOADERS == ("Own", "Own")
    assert type(module.__spec__.loader) is type(module.__loader__) is Own
    assert seen == [module]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python asks no such finder any more")
@pytest.mark.filterwarnings("ignore::ImportWarning")
def test_a_finder_of_old_is_heard_in_its_turn(name):
    class Old:
        @staticmethod
        def find_module(name, _path=None):
            return Old if name == "awaited_example" else None

        @staticmethod
        def load_module(name):
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].LOADERS = "old"
            return sys.modules[name]

    after_import(name, print)
    sys.meta_path.insert(1, Old)
    assert importlib.import_module(name).LOADERS == "old"


def test_a_spec_that_is_only_looked_at_has_the_loader_it_would_have(name):
    after_import(name, print)
    spec = importlib.util.find_spec(name)
    assert isinstance(spec.loader, SourceFileLoader)
    assert spec.loader.get_source(name) == SOURCE
    lazy = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, lazy))
    lazy.exec_module(module)
    assert module.LOADERS == ("SourceFileLoader", "SourceFileLoader")
