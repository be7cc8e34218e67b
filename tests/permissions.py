"""Taking away permissions such that they bind root too."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

_VERSION = 0x20080522
#: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: whoever has them may read what the mode forbids.
_READS_ALL = 1 << 1 | 1 << 2


@contextmanager
def mode(path: Path, bits: int) -> Iterator[None]:
    """`path` has the mode `bits`, and it is heeded; skips the test where that cannot be had."""
    before = path.stat().st_mode
    with ExitStack() as stack:
        if os.geteuid() == 0:
            stack.enter_context(_without_privilege())
        path.chmod(bits)
        stack.callback(path.chmod, before)
        yield


@contextmanager
def _without_privilege() -> Iterator[None]:
    """This thread does without the two capabilities for a while."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        capget, capset = libc.capget, libc.capset
    except (OSError, AttributeError):
        pytest.skip("root reads everything here")
    header = ctypes.create_string_buffer(struct.pack("=Ii", _VERSION, 0), 8)
    data = ctypes.create_string_buffer(24)
    if capget(header, data) != 0:
        pytest.skip("root reads everything here")
    before = data.raw
    effective, *rest = struct.unpack("=6I", before)
    lesser = struct.pack("=6I", effective & ~_READS_ALL, *rest)
    if capset(header, ctypes.create_string_buffer(lesser, 24)) != 0:
        pytest.skip("root reads everything here")
    try:
        yield
    finally:
        capset(header, ctypes.create_string_buffer(before, 24))
