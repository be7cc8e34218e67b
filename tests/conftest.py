"""For all tests: no test leaves this process recording."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slime_profiler_plugin import timeline


@pytest.fixture(autouse=True)
def _timeline_off() -> Iterator[None]:
    yield
    timeline.stop()
