"""Stores and process groups, on the loopback interface only."""

from __future__ import annotations

import importlib
import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

#: A `torch.distributed.TCPStore`.
Store: TypeAlias = Any
LOOPBACK: Final = "127.0.0.1"
#: A rank that waits longer than this for the others has lost them.
_TIMEOUT: Final = timedelta(seconds=120)


def host_store() -> Store:
    """A store that listens on a free port of 127.0.0.1 for as long as it lives.

    The socket is bound here because a store binds every interface by itself.
    """
    dist = _distributed()
    listener = socket.create_server((LOOPBACK, 0))
    port = listener.getsockname()[1]
    return dist.TCPStore(
        LOOPBACK,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=_TIMEOUT,
        master_listen_fd=listener.detach(),
    )


def join_store(port: int) -> Store:
    """The store that another process hosts."""
    dist = _distributed()
    return dist.TCPStore(LOOPBACK, port, is_master=False, wait_for_workers=False, timeout=_TIMEOUT)


def init_world(store: Store, rank: int, size: int, device: str) -> Any:
    """Make this process rank `rank` of the trainers' world; return its group for barriers.

    Barriers have a gloo group of their own, so that they never touch a GPU.
    """
    dist = _distributed()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    backend = "nccl" if device.startswith("cuda") else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_TIMEOUT)
    return dist.new_group(backend="gloo", timeout=_TIMEOUT)


def leave_world() -> None:
    """Undo `init_world`."""
    dist = _distributed()
    dist.destroy_process_group()


def agree(value: Any, group: Any) -> Any:
    """What the group's rank 0 gave as `value`. Collective."""
    agreed = [value]
    _distributed().broadcast_object_list(agreed, src=0, group=group)
    return agreed[0]


def gather(value: Any, group: Any) -> list[Any]:
    """What each of the group's ranks gave as `value`. Collective."""
    gathered: list[Any] = [None] * group.size()
    _distributed().all_gather_object(gathered, value, group=group)
    return gathered


class BroadcastGroup:
    """A group beside the world: rank 0 sends weights, the others are engines.

    gloo for tensors on the CPU, nccl for tensors on GPUs. Building it waits for all ranks.
    """

    def __init__(self, store: Store, rank: int, size: int, device: str) -> None:
        dist = _distributed()
        prefixed = dist.PrefixStore("weights", store)
        self._store = store
        self._group: Any
        if device.startswith("cuda"):
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = _TIMEOUT
            self._group = dist.ProcessGroupNCCL(prefixed, rank, size, options)
        else:
            options = dist.ProcessGroupGloo._Options()
            options._timeout = _TIMEOUT
            options._devices = [dist.ProcessGroupGloo.create_device(hostname=LOOPBACK)]
            self._group = dist.ProcessGroupGloo(prefixed, rank, size, options)

    def broadcast(self, tensors: list[Tensor]) -> None:
        """Send them from rank 0, or receive them in place; all at once, then wait."""
        for work in [self._group.broadcast(tensor, 0) for tensor in tensors]:
            work.wait()


def _distributed() -> Any:
    """torch.distributed untyped: its annotations leave out stores and process groups."""
    return importlib.import_module("torch.distributed")
