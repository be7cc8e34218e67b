"""Changing this process's environment, which its children inherit, and putting it back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


@contextmanager
def changed_environment(added: Mapping[str, str], without: Sequence[str] = ()) -> Iterator[None]:
    """Add variables and take others out, for as long as the block lasts."""
    saved = {name: os.environ.get(name) for name in (*added, *without)}
    os.environ.update(added)
    for name in without:
        os.environ.pop(name, None)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
