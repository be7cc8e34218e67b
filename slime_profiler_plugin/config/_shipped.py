"""The configurations that come with the package."""

from __future__ import annotations

import difflib
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ._yaml import ConfigError

if TYPE_CHECKING:
    from importlib.abc import Traversable  # elsewhere, by Python version

_SUFFIX: Final = ".yaml"


def _folder() -> Traversable:
    """Where the shipped files lie: the installed package, or `configs/` of a checkout."""
    try:
        return files("slime_profiler_configs")
    except ModuleNotFoundError:
        checkout = Path(__file__).parents[2] / "configs"
        if (checkout / "__init__.py").is_file():
            return checkout
        raise ConfigError(
            "the package slime_profiler_configs is missing: slime-profiler-plugin is only partly installed"
        ) from None


def list_configs() -> list[str]:
    """Names of the shipped configurations, sorted."""
    return sorted(f.name.removesuffix(_SUFFIX) for f in _folder().iterdir() if f.name.endswith(_SUFFIX))


def read_shipped_text(name: str) -> str:
    """The commented YAML of a shipped configuration. Raises `ConfigError` as `check_name` does."""
    check_name(name)
    return (_folder() / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def check_name(name: str, *others: str) -> None:
    """Raises `ConfigError`, suggesting the nearest, for what is neither shipped nor one of `others`."""
    allowed = [*list_configs(), *others]
    if name not in allowed:
        raise ConfigError(
            f"no shipped configuration is called {name!r}{suggest(name, allowed)}; "
            f"allowed: {', '.join(allowed)}, or the path of a file (with a / or ending in {_SUFFIX})"
        )


def suggest(word: str, known: list[str]) -> str:
    """``", did you mean 'x'?"`` for the nearest of `known`, or nothing."""
    near = difflib.get_close_matches(word, known, n=1)
    return f", did you mean {near[0]!r}?" if near else ""
