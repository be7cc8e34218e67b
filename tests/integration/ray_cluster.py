"""Ray clusters of a test's own on 127.0.0.1, whose nodes see different files."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: A fast, small Ray that listens on the loopback interface only and is nobody's but the test's.
QUIET = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
    "OMP_NUM_THREADS": "1",
}
_START = ["-m", "ray.scripts.scripts", "start"]
_START += ["--num-cpus=2", "--object-store-memory=80000000", "--node-ip-address=127.0.0.1", "--block"]
#: What `ray.cluster_utils` does for one more node, in a process of its own, as ``ray start`` refuses to
#: join a cluster on the loopback interface.
_NODE = """
import sys, threading
from ray._private.node import Node
from ray._private.parameter import RayParams

parameters = RayParams(
    gcs_address=sys.argv[1], node_ip_address="127.0.0.1", num_cpus=2, num_gpus=0,
    object_store_memory=80_000_000, min_worker_port=0, max_worker_port=0, dashboard_port=None,
)
node = Node(parameters, head=False, shutdown_at_exit=True, spawn_reaper=True)
threading.Event().wait()
"""


def clean_environment(**more: str) -> dict[str, str]:
    """This process's, without what belongs to a run, a scheduler or another cluster."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("SLIME_", "SLURM", "RAY_", "TORCHELASTIC"))
    }
    kept.pop("PYTHONPATH", None)
    return kept | QUIET | more


class Cluster:
    """A cluster at `address`; `folder` is where Ray keeps its files."""

    def __init__(self, folder: str, environment: dict[str, str]) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{_free_port()}"
        self._environment = environment
        self._nodes: list[subprocess.Popen[bytes]] = []

    def start_head(self, *, dashboard: bool = False) -> str:
        """The first node; gives the dashboard's address, which jobs are submitted to."""
        port, dashboard_port = self.address.partition(":")[2], _free_port()
        options = [
            f"--port={port}",
            f"--temp-dir={self.folder}",
            f"--include-dashboard={str(dashboard).lower()}",
        ]
        options += ["--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard_port}"]
        options += [f"--dashboard-agent-listen-port={_free_port()}"]
        self._start([*_START, "--head", *options])
        return f"http://127.0.0.1:{dashboard_port}"

    def add_node(self, *, hidden: Sequence[Path] = (), environment: dict[str, str] | None = None) -> None:
        """Another node, on which the folders `hidden` are empty (needs the right to mount)."""
        self._start(["-c", _NODE, self.address], hidden, environment or {})

    def wait_for(self, nodes: int, patience_s: float = 100.0) -> None:
        """Until so many nodes are alive."""
        import ray

        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            try:
                from ray._private.state import GlobalState

                state = GlobalState()
                state._initialize_global_state(
                    ray._raylet.GcsClientOptions.create(
                        self.address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=True
                    )
                )
                if sum(node["Alive"] for node in state.node_table()) >= nodes:
                    return
            except (RuntimeError, ray.exceptions.RpcError, ray.exceptions.RaySystemError):
                pass  # the head is not up yet, which on a busy machine takes longer than Ray waits
            time.sleep(0.3)
        logs = [p.read_text(errors="replace")[-2000:] for p in sorted(Path(self.folder).glob("node-*.log"))]
        raise AssertionError(f"{nodes} nodes did not come up: {logs}")

    def run(self, script: str, *arguments: str, timeout: float = 100.0, **environ: str) -> str:
        """The output of a driver; it fails the test when the driver fails."""
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            env=self._environment | {"RAY_ADDRESS": self.address} | environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def close(self) -> None:
        """End its nodes and what they started."""
        for node in reversed(self._nodes):
            node.send_signal(signal.SIGTERM)
        for node in self._nodes:
            _end(node)

    def _start(
        self, arguments: list[str], hidden: Sequence[Path] = (), environment: dict[str, str] | None = None
    ) -> None:
        command = [sys.executable, *arguments]
        if hidden:
            mounts = "for each in $HIDDEN; do mount -t tmpfs none $each || exit 9; done; "
            command = ["unshare", "--mount", "sh", "-c", f'{mounts}exec "$@"', "sh", *command]
        more = {"HIDDEN": " ".join(map(str, hidden)), **(environment or {})}
        with Path(self.folder, f"node-{len(self._nodes)}.log").open("wb") as log:
            self._nodes.append(
                subprocess.Popen(
                    command,
                    env=self._environment | more,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.folder,
                    start_new_session=True,
                )
            )


def _end(node: subprocess.Popen[bytes]) -> None:
    try:
        node.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()


@contextmanager
def open_cluster(environment: dict[str, str]) -> Iterator[Cluster]:
    """One without nodes yet; what it is afterwards is gone."""
    folder = subprocess.run(["mktemp", "-d", "/tmp/spcXXXXXX"], capture_output=True, text=True, check=True)
    cluster = Cluster(folder.stdout.strip(), environment)
    try:
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(cluster.folder, ignore_errors=True)


def can_mount() -> bool:
    """Whether this process may hide folders from its children."""
    if shutil.which("unshare") is None:
        return False
    attempt = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(attempt, capture_output=True, check=False).returncode == 0


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
