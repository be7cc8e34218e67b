"""The CPU as one of slime's accelerators: streams and memory are not real here, collectives are gloo's."""

from __future__ import annotations

import contextlib
from typing import Any

import no_cuda
import seen_calls


def install() -> None:
    """For the rest of the process, once slime's registry of accelerators is there."""
    import torch

    no_cuda.install()
    seen_calls.install_collectives()
    torch.cuda.get_device_properties = lambda *_: _Device()
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.ipc_collect = lambda: None
    torch._C._host_emptyCache = lambda: None
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(torch.cuda, name, lambda *_: 0)
    # Compiling would take longer than everything else, and ask CUDA what only Megatron is answered.
    torch.compile = _uncompiled
    # Tensors on the CPU go from one Ray worker to another by name: passing descriptors needs a parent.
    torch.multiprocessing.set_sharing_strategy("file_system")

    from slime.utils.accelerator import Accelerator, register_accelerator

    class Cpu(Accelerator):
        name = device_type = "cpu"
        communication_backend_name = "gloo"

        def is_available(self) -> bool:
            return True

        def device(self, _index: Any = None) -> torch.device:
            return torch.device("cpu")

        def device_name(self, _index: Any = None) -> str:
            return "cpu"

        def set_device(self, _index: Any) -> None: ...
        def current_device(self) -> str:
            return "cpu"

        def device_count(self) -> int:
            return 1

        def synchronize(self, _device: Any = None) -> None: ...
        def current_stream(self, _device: Any = None) -> Any:
            return no_cuda._Stream()

        def stream(self, _stream: Any) -> Any:
            return contextlib.nullcontext()

        def empty_cache(self) -> None: ...
        def mem_get_info(self, _device: Any = None) -> tuple[int, int]:
            return 1 << 30, 1 << 30

        def memory_allocated(self, _device: Any = None) -> int:
            return 0

        def memory_reserved(self, _device: Any = None) -> int:
            return 0

        def distributed_device_id(self, _index: Any = None) -> None:
            return None

        def resolve_visible_device_id(self, _physical: Any) -> int:
            return 0

    register_accelerator("cpu", Cpu, lambda: True, priority=1, communication_backends=("gloo",))


def _uncompiled(function: Any = None, **_options: Any) -> Any:
    return (lambda later: later) if function is None else function


class _Device:
    """What Megatron asks about a device."""

    total_memory = 1 << 30
    multi_processor_count = 1
    major, minor = 9, 0
    name = "cpu"
