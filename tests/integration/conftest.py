"""Helper modules beside the tests are found however pytest is called."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ray_nodes import Nodes

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def ray_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """One cluster for all tests that do no harm to it."""
    pytest.importorskip("ray")
    from ray_nodes import open_nodes

    with open_nodes(tmp_path_factory.mktemp("nodes")) as nodes:
        yield nodes
