"""The demo's actors, with something done to each process before it records.

Found by Ray's workers through ``PYTHONPATH``. Which fault stands in their environment.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import json
import logging
import os
import resource
import shutil
import signal
import sys
import threading
import time
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from slime_profiler_plugin import timeline
from slime_profiler_plugin.demo._actors import EngineActor, RolloutManagerActor, TrainerActor

OUT = "FAULTY_ACTORS_OUT"
FAULT = "FAULTY_ACTORS_FAULT"
SLOW_S = 5.0
#: Whoever waits longer for the other will not meet it.
MEETING_S = 60.0
#: What a trainer's disk can still take when it is full from the start.
LEFT_BYTES = 8_192
TMPFS_BYTES = 4 << 20
_CLONE_NEWNS = 0x00020000
_MS_RDONLY = 1
_MS_PRIVATE_REC = 0x40000 | 0x4000
_FILLER = "filler"


def begin(role: str, rank: int) -> None:
    """Keep what the plugin warns of, and do what this demo is about."""
    handler = logging.FileHandler(f"{os.environ[OUT]}/logs/{role}-{rank}.log")
    handler.setLevel(logging.WARNING)
    logging.getLogger("slime_profiler_plugin").addHandler(handler)
    if os.environ[FAULT]:
        globals()[os.environ[FAULT]](role, rank)


class Trainer(TrainerActor):
    """A trainer rank."""

    def __init__(self, settings: Any, rank: int, lock: Any) -> None:
        begin("actor", rank)
        super().__init__(settings, rank, lock)
        self._last = settings.rollouts - 1

    def train(self, rollout: int, shares: Sequence[Any], values: Sequence[Any]) -> Any:
        if rollout == self._last:
            _recover()
        return super().train(rollout, shares, values)

    def stop(self) -> None:
        super().stop()
        _rescue()


class Engine(EngineActor):
    """An engine."""

    def __init__(self, settings: Any, index: int) -> None:
        begin("engine", index)
        super().__init__(settings, index)


class Manager(RolloutManagerActor):
    """The rollout manager."""

    def __init__(self, settings: Any) -> None:
        begin("rollout_manager", 0)
        super().__init__(settings)


def can_mount() -> bool:
    """Whether this process may mount in a namespace of its own."""
    code = "import faulty_actors as f; f._enter_mount_namespace()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return os.spawnve(os.P_WAIT, sys.executable, [sys.executable, "-c", code], environment) == 0


# Faults: role, rank -> None. They are done in the process of the actor.


def full_tmpfs(role: str, rank: int) -> None:
    """Rank 1 records into a file system of 4 MB that is full until the last rollout."""
    if (role, rank) != ("actor", 1):
        return
    out = Path(os.environ["SLIME_PROFILER_OUT"])
    _enter_mount_namespace()
    _mount("tmpfs", out, "tmpfs", 0, f"size={TMPFS_BYTES}")
    filler = out / _FILLER
    free = os.statvfs(out)
    filler.write_bytes(bytes(free.f_bavail * free.f_frsize - LEFT_BYTES))


def limited_file_size(role: str, rank: int) -> None:
    """Rank 1 may write no file of more than a few lines until the last rollout."""
    if (role, rank) != ("actor", 1):
        return
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LEFT_BYTES, resource.RLIM_INFINITY))


def read_only_mount(role: str, rank: int) -> None:
    """Rank 1 sees the folder of all runs read-only."""
    if (role, rank) != ("actor", 1):
        return
    _enter_mount_namespace()
    _mount("tmpfs", Path(os.environ["SLIME_PROFILER_OUT"]), "tmpfs", _MS_RDONLY, "size=64k")


def missing_nvtx(_role: str, _rank: int) -> None:
    """``import nvtx`` fails."""
    sys.modules["nvtx"] = None  # type: ignore[assignment]


def raising_hooks(role: str, rank: int) -> None:
    """Rank 0: an NVTX tool's push raises. Rank 1: torch's record_function does."""
    if (role, rank) == ("actor", 0):
        sys.modules["nvtx"] = _nvtx_that_raises()
    elif (role, rank) == ("actor", 1):
        autograd = importlib.import_module("torch")._C._autograd
        autograd._record_function_with_args_enter = _raise


def failed_export(role: str, rank: int) -> None:
    """Rank 1: the disk is full when torch exports."""
    if (role, rank) == ("actor", 1):

        def export(*_: object) -> NoReturn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        importlib.import_module("torch").profiler.profile.export_chrome_trace = export


def slow_export(role: str, rank: int) -> None:
    """Rank 1: an export takes 5 s."""
    if (role, rank) == ("actor", 1):
        profile = importlib.import_module("torch").profiler.profile
        export = profile.export_chrome_trace

        def slowly(self: Any, path: str) -> None:
            time.sleep(SLOW_S)  # what is simulated, not waited for
            export(self, path)

        profile.export_chrome_trace = slowly


def generation_and_training_meet(role: str, rank: int) -> None:
    """Rollout r + 1 is not done being generated before training on r has begun, nor the other way round.

    Without this, whether the two overlap is a matter of a few milliseconds on a busy machine.
    """
    if role == "engine":
        engine = importlib.import_module("slime_profiler_plugin.demo.engine")
        generate = engine.generate_responses

        def generate_late(parameters: Any, samples: Any, *rest: Any) -> Any:
            rollout = samples[0].rollout
            _tell(f"generating-{rollout}")
            if rollout > 0:
                _wait_for(f"training-{rollout - 1}")
            return generate(parameters, samples, *rest)

        engine.generate_responses = generate_late
    elif (role, rank) == ("actor", 0):
        trainer = importlib.import_module("slime_profiler_plugin.demo.trainer").Trainer
        train, loss = trainer.train, trainer._loss

        def train_on(self: Any, rollout: int, fetch: Any) -> Any:
            self.rollout = rollout
            return train(self, rollout, fetch)

        def loss_late(self: Any, *values: Any) -> Any:
            _tell(f"training-{self.rollout}")
            if self.rollout < self._settings.rollouts - 1:
                _wait_for(f"generating-{self.rollout + 1}")
            return loss(self, *values)

        trainer.train, trainer._loss = train_on, loss_late


def _tell(what: str) -> None:
    (Path(os.environ[OUT]) / what).touch()


def _wait_for(what: str) -> None:
    deadline = time.monotonic() + MEETING_S
    while not (Path(os.environ[OUT]) / what).exists():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.005)


def killed_in_a_phase(role: str, rank: int) -> None:
    """Rank 1 is killed while it prepares rollout 1, once its record file tells of that phase."""
    if (role, rank) != ("actor", 1):
        return
    trainer = importlib.import_module("slime_profiler_plugin.demo.trainer")
    batch_samples = trainer.batch_samples

    def killed(samples: Any, device: str) -> Any:
        if samples[0].rollout == 1:
            name = f"{timeline.source().rpartition('@')[2]}.jsonl"
            (file,) = Path(os.environ["SLIME_PROFILER_OUT"]).glob(f"*/records/*/{name}")
            while not _is_open(file, "data_preprocess"):
                threading.Event().wait(0.05)
            os.kill(os.getpid(), signal.SIGKILL)
        return batch_samples(samples, device)

    trainer.batch_samples = killed


def _is_open(file: Path, name: str) -> bool:
    lines = file.read_bytes().split(b"\n")[:-1]
    return any((line["kind"], line.get("name")) == ("open", name) for line in map(json.loads, lines))


def _recover() -> None:
    """Make room on a full disk."""
    if os.environ[FAULT] == "limited_file_size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if os.environ[FAULT] == "full_tmpfs":
        (Path(os.environ["SLIME_PROFILER_OUT"]) / _FILLER).unlink(missing_ok=True)


def _rescue() -> None:
    """A tmpfs is gone with the process: keep what was written on it."""
    out = Path(os.environ["SLIME_PROFILER_OUT"])
    if os.environ[FAULT] == "full_tmpfs" and os.path.ismount(out):
        shutil.copytree(out, Path(os.environ[OUT]) / "rescued", dirs_exist_ok=True)


def _enter_mount_namespace() -> None:
    """A namespace of this thread, and of the threads it starts from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    _mount("none", Path("/"), None, _MS_PRIVATE_REC, None)


def _mount(source: str, target: Path, kind: str | None, flags: int, data: str | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    encode = [None if text is None else text.encode() for text in (source, str(target), kind, data)]
    if libc.mount(*encode[:3], ctypes.c_ulong(flags), encode[3]) != 0:
        raise OSError(ctypes.get_errno(), "mount", str(target))


def _raise(*_: object) -> NoReturn:
    raise RuntimeError("this hook always fails")


def _nvtx_that_raises() -> types.ModuleType:
    class Domain:
        push_range = start_range = staticmethod(_raise)
        pop_range = end_range = staticmethod(_raise)

        def get_category_id(self, _name: str) -> int:
            return 1

        def get_event_attributes(self, **attributes: object) -> types.SimpleNamespace:
            return types.SimpleNamespace(**attributes)

        def mark(self, _attributes: types.SimpleNamespace) -> None:
            pass

    module = types.ModuleType("nvtx")
    module.get_domain = lambda _name: Domain()  # type: ignore[attr-defined]
    return module
