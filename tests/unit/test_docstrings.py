"""The worked examples in docstrings are right."""

import doctest
import importlib
import pkgutil

import pytest

import slime_profiler_plugin

MODULES = [m.name for m in pkgutil.walk_packages(slime_profiler_plugin.__path__, "slime_profiler_plugin.")]
#: What an example needs beside what the package does.
NEEDED = {"slime_profiler_plugin.attach.sglang._sizes": "torch"}


def holds_examples(module):
    return any(test.examples for test in doctest.DocTestFinder(exclude_empty=True).find(module))


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{error.name} is not installed")
    assert doctest.testmod(module).failed == 0


def test_there_are_examples():
    assert holds_examples(importlib.import_module("slime_profiler_plugin.schema"))
