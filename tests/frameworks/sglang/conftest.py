"""What the tests with SGLang share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Makes, once for each interpreter, a folder with the tiny models ``a`` and ``b``, to be copied."""

    @functools.cache
    def make(python: Path) -> Path:
        import engines

        folder = tmp_path_factory.mktemp("models")
        engines.make_models(python, folder)
        return folder

    return make
