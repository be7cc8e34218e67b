"""A Ray cluster of the demo's own, on the loopback interface, gone when the demo ends."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ._environment import changed_environment
from ._group import LOOPBACK
from ._processes import list_users, wait_until_gone

#: Ray's sockets lie about 60 characters below its folder, and a socket's path ends at 107.
_LONGEST_FOLDER: Final = 30
_OBJECT_STORE_BYTES: Final = 80_000_000  # the least that Ray takes, rounded up
_GONE_S: Final = 20.0
#: After a failure or Ctrl-C: whoever has not gone by then is killed.
_GONE_SOON_S: Final = 3.0

#: What Ray reads when it is imported and when it starts.
_RAY_ENVIRONMENT: Final = {
    # Without this Ray turns 127.0.0.1 into the address other hosts see, and listens there.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # A token of our own: by default Ray makes one and writes it into the home directory.
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    # A machine that is nearly full is not ours to judge.
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
}
#: Not ours to join, and what Ray sets by itself.
_LEFT_OUT: Final = ("RAY_ADDRESS", "RAY_AUTH_MODE")


class DemoError(RuntimeError):
    """The demo could not run, or what it shows is wrong."""


@contextmanager
def own_cluster(cpus: int) -> Iterator[int]:
    """Start a cluster, connect to it, and end it and its folder however the block ends.

    What its processes put into a temporary folder goes with it. Another cluster is neither
    used nor disturbed, whatever ``RAY_ADDRESS`` says. `cpus` is what Ray counts with, whatever
    the machine has; gives the GPUs that Ray found. Raises `DemoError` when this process is
    connected to a cluster already, or Ray does not start.
    """
    base = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="spd", dir=base if len(base) <= _LONGEST_FOLDER else "/tmp")
    patience_s = _GONE_SOON_S
    try:
        with changed_environment({**_RAY_ENVIRONMENT, "TMPDIR": folder}, without=_LEFT_OUT):
            import ray

            if ray.is_initialized():
                raise DemoError("this process is connected to a Ray cluster; the demo starts one of its own")
            try:
                with _kept_sigterm():
                    _start_ray(cpus, folder)
                list_nodes: Callable[[], list[dict[str, Any]]] = ray.nodes
                (node,) = list_nodes()
                address = node["NodeManagerAddress"]
                if address != LOOPBACK:
                    raise DemoError(
                        f"Ray listens on {address}, not on {LOOPBACK}: it was imported before the demo"
                    )
                yield int(node["Resources"].get("GPU", 0))
                patience_s = _GONE_S
            finally:
                with _undisturbed():
                    # By the folder that they were given: after Ctrl-C, which all processes of a terminal
                    # hear, some are nobody's children any more.
                    ours = list_users(folder)
                    ray.shutdown()
                    wait_until_gone(ours, patience_s)
    finally:
        with _undisturbed():
            _remove(folder)


def _remove(folder: str) -> None:
    """What one of the last processes wrote meanwhile must go too."""
    deadline = time.monotonic() + _GONE_SOON_S
    while os.path.exists(folder) and time.monotonic() < deadline:
        wait_until_gone(list_users(folder), _GONE_SOON_S)
        shutil.rmtree(folder, ignore_errors=True)


def _start_ray(cpus: int, folder: str) -> None:
    import ray

    try:
        ray.init(
            address="local",
            num_cpus=cpus,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address=LOOPBACK,
            _temp_dir=folder,
        )
    except (RuntimeError, OSError, ValueError) as error:
        raise DemoError(f"Ray did not start: {error}") from error


@contextmanager
def _kept_sigterm() -> Iterator[None]:
    """Put back the SIGTERM handler, which Ray replaces in the main thread."""
    with _kept_handlers(signal.SIGTERM):
        yield


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Not to be interrupted: it takes seconds, and what it leaves half done stays for ever."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with _kept_handlers(*numbers) as is_main_thread:
        for number in numbers if is_main_thread else ():
            signal.signal(number, signal.SIG_IGN)
        yield


@contextmanager
def _kept_handlers(*numbers: signal.Signals) -> Iterator[bool]:
    """Put back these signals' handlers; gives whether this is the main thread, which alone can."""
    if threading.current_thread() is not threading.main_thread():
        yield False
        return
    handlers = {number: signal.getsignal(number) for number in numbers}
    try:
        yield True
    finally:
        for number, handler in handlers.items():
            if handler is not None:  # not Python's, and nothing that could be put back
                signal.signal(number, handler)
