"""The samples of a dump, loaded so that nothing in the file is run.

The one place of this package beside the recorder and the demo that imports torch, and only for such a file.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from ._damage import ReadError, TraceRefusedError

#: Before it, ``weights_only`` could be made to run code.
_OLDEST_TORCH: Final = (2, 6)
_NEEDED: Final = "samples that slime dumped: reading them needs torch 2.6 or newer (pip install torch)"
_LONGEST_REASON: Final = 300
#: Kinds of numbers; arrays of objects or of records are refused.
_DTYPES: Final = np.typecodes["AllInteger"] + np.typecodes["AllFloat"] + "?SUMm"


def require_torch(path: Path) -> None:
    """Raises `TraceRefusedError` where torch is not installed; does not import it."""
    try:
        found = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise TraceRefusedError(f"{path}: {_NEEDED}")


def load_samples(path: Path) -> list[Any]:
    """The list of samples in the dump at `path`; tensors stay on disk.

    Raises `TraceRefusedError` without torch, for a pickle that names any class but those of numbers, and for
    what is no dump; `ReadError` where it cannot be read.
    """
    require_torch(path)
    import torch

    version = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if version is None or (int(version[1]), int(version[2])) < _OLDEST_TORCH:
        raise TraceRefusedError(f"{path}: {_NEEDED}; here is {torch.__version__}")
    try:
        with torch.serialization.safe_globals(_numbers()):
            told = torch.load(str(path), map_location="cpu", weights_only=True, mmap=True)
    except MemoryError:
        raise
    except OSError as error:
        raise ReadError(f"{path}: {error.strerror or error}") from error
    except Exception as error:  # a damaged pickle raises anything
        raise TraceRefusedError(f"{path}: {_explain(error)}") from error
    samples = told.get("samples") if isinstance(told, dict) else None
    if not isinstance(samples, list):
        raise TraceRefusedError(f"{path}: no samples that slime dumped: it holds no list of them")
    return samples


def _numbers() -> list[Callable[..., Any] | tuple[Callable[..., Any], str]]:
    """What numpy's arrays and scalars are pickled as, under the names of its releases."""
    multiarray = np.ndarray.__reduce__(np.zeros(0))[0].__module__
    module = importlib.import_module(multiarray)
    named: list[tuple[Callable[..., Any], str]] = [
        (getattr(module, name), f"{package}.multiarray.{name}")
        for name in ("_reconstruct", "scalar")
        for package in ("numpy.core", "numpy._core")
    ]
    import _codecs  # what bytes are pickled as

    return [np.ndarray, np.dtype, *{type(np.dtype(code)) for code in _DTYPES}, *named, _codecs.encode]


def _explain(error: Exception) -> str:
    text = " ".join(str(error).split())
    refused = re.search(r"GLOBAL ([\w.]+)", text) or re.search(r"class ['\"]?([\w.]+)", text)
    if "Unsupported" in text or "unsupported" in text:
        named = f"its pickle names {refused[1]}" if refused else "its pickle does more than hold data"
        return f"{named}, which is not loaded: only plain values, tensors and numpy's numbers are"
    text = text.rpartition("WeightsUnpickler error: ")[2]
    return f"its pickle cannot be read: {type(error).__name__}: {text[:_LONGEST_REASON]}"
