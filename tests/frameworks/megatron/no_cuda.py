"""Lets Megatron-Core run where there is no CUDA: what it asks of ``torch.cuda`` is answered for a CPU.

Megatron itself stays as it was installed. Streams and random states are not real here, so nothing
that these tests show is about overlap or dropout.
"""

from __future__ import annotations

import builtins
import contextlib
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _Stream:
    """Work that is done by the time one asks."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None: ...
    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_error: object) -> None: ...
    def wait_stream(self, _other: object) -> None: ...
    def wait_event(self, _event: object) -> None: ...
    def synchronize(self) -> None: ...
    def record_event(self, *_args: Any) -> _Event:
        return _Event()


class _Event:
    def __init__(self, *_args: Any, **_kwargs: Any) -> None: ...
    def record(self, *_args: Any) -> None: ...
    def wait(self, *_args: Any) -> None: ...
    def synchronize(self) -> None: ...
    def query(self) -> bool:
        return True

    def elapsed_time(self, _other: object) -> float:
        return 0.0


def _is_cuda(device: object) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return device.startswith("cuda")
    return isinstance(device, int) and not isinstance(device, bool)


class _OnCpu(TorchFunctionMode):
    """Tensors meant for CUDA are made on the CPU, and name the type that Megatron compares with."""

    def __torch_function__(
        self, function: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        kwargs.pop("pin_memory", None)  # pages are locked for a device only
        name = getattr(function, "__name__", "")
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = "cpu"
        if name == "cuda":
            return args[0]
        if name == "to" and len(args) > 1 and not isinstance(args[1], torch.Tensor) and _is_cuda(args[1]):
            args = (args[0], "cpu", *args[2:])
        result = function(*args, **kwargs)
        if name == "type" and len(args) == 1 and not kwargs:
            return result.replace("torch.", "torch.cuda.", 1)
        return result


def install() -> None:
    """For the rest of the process, before Megatron is imported."""
    answers: dict[str, Any] = {
        "current_device": lambda: "cpu",  # a number would mean a CUDA device
        "set_device": lambda *_: None,
        "synchronize": lambda *_: None,
        "current_stream": lambda *_: _Stream(),
        "default_stream": lambda *_: _Stream(),
        "stream": lambda *_: contextlib.nullcontext(),
        "empty_cache": lambda: None,
        "device_count": lambda: 1,
        "manual_seed": lambda _seed: None,
        "get_rng_state": lambda *_, **__: torch.get_rng_state(),
        "set_rng_state": lambda state, *_, **__: torch.set_rng_state(state),
        "Stream": _Stream,
        "Event": _Event,
        "_lazy_init": lambda: None,
        "_lazy_call": lambda _call, **_: None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    torch.cuda.random.get_rng_state = answers["get_rng_state"]
    torch.cuda.random.set_rng_state = answers["set_rng_state"]
    # Megatron-Core 0.16 asks for this name without Transformer Engine, where nothing binds it.
    builtins.te_general_gemm = None  # type: ignore[attr-defined]
    _OnCpu().__enter__()
