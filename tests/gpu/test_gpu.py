"""The GPU checks under pytest; skipped with the reason where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from checks import CHECKS, Skip, why_no_gpu

_REASON = why_no_gpu()


@pytest.mark.skipif(_REASON is not None, reason=str(_REASON))
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_on_a_gpu(check: Callable[[], str]) -> None:
    try:
        check()
    except Skip as skip:
        pytest.skip(str(skip))
