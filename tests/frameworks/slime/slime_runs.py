"""Runs slime's own train.py on this machine, with engines outside of it, and reads what all of them tell."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import prepare
import pytest
from recordings import ROOT, environment

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 1200
#: Ray gives itself half a minute to start, which a busy machine may not have.
TRIES = 4
RUN = "job"
ROLLOUTS = 2


@dataclass(frozen=True)
class Case:
    """One way to lay out a job and to send its weights."""

    transport: str = "distributed"
    tp: int = 1
    pp: int = 1
    ep: int = 1
    #: One that spans both GPUs where its tensors are handed over, else of one each.
    engines: int = 1
    #: As a real Qwen2 has them: without them a real engine would not know what to add.
    qkv_biases: bool = False
    #: Trainers and engines give way to each other, as far as that shows on a CPU.
    offload: bool = False
    #: Of slime's.
    script: str = "train.py"
    more: tuple[str, ...] = field(default=())

    @property
    def gpus(self) -> int:
        """Of each engine."""
        return 2 // self.engines if self.transport == "tensor" else 1

    @property
    def dp(self) -> int:
        return 2 // (self.tp * self.pp)

    @property
    def layers(self) -> int:
        return 2 * self.pp

    @property
    def experts(self) -> int:
        return 4 if self.ep > 1 else 0


class Fleet(NamedTuple):
    """The ports of engines that run already, and of the router before them."""

    router: int
    engines: list[int]


@dataclass(frozen=True)
class Places:
    """What `make slime` has built, and where slime is."""

    python: Path
    slime: Path
    megatron: Path


def find_places() -> Places:
    """Skips where something is not there, or was built from another lock or another pin."""
    import hashlib

    try:
        slime = prepare.find_slime()
        commit = prepare.pinned_megatron(slime)
    except prepare.MissingError as missing:
        pytest.skip(str(missing))
    lock = hashlib.sha256((ROOT / "requirements" / "slime.txt").read_bytes()).hexdigest()[:12]
    python = ROOT / ".cache" / "venvs" / f"slime-{lock}"
    megatron = ROOT / ".cache" / "slime" / "megatron"
    ready = megatron / ".ready"
    if not (python / ".ready").is_file() or not ready.is_file() or ready.read_text() != commit:
        pytest.skip("the environment with slime is not there: run `make slime`")
    return Places(python / "bin" / "python", slime, megatron)


def job_environment(places: Places, seen: Path, temporary: Path, **more: str) -> dict[str, str]:
    """Of the driver, which all its processes inherit."""
    base = environment()
    path = [
        *(HERE / "on_cpu", HERE / "stand_ins", places.megatron, places.slime),
        *(ROOT, ROOT / "tests", ROOT / "tests" / "frameworks" / "megatron"),
    ]
    quiet = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false"}
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    local = {"GLOO_SOCKET_IFNAME": "lo", "SLIME_HOST_IP": "127.0.0.1", "SLIME_ACCELERATOR": "cpu"}
    # Ray's own name for "this machine only": else it takes the address of another interface for 127.0.0.1.
    local["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    # Inductor would ask CUDA, which only answers here as far as Megatron needs it.
    plain = {"TORCH_COMPILE_DISABLE": "1", "TORCHDYNAMO_DISABLE": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    ray = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "SLIME_TESTS_RAY": str(temporary)}
    ray["RAY_worker_niceness"] = "0"  # a busy machine starves workers of low priority
    # Imports are most of a run: what was compiled once is kept beside the environment.
    compiled = {"PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "pycache"), "SLIME_TESTS_SEEN": str(seen)}
    base.pop("PYTHONDONTWRITEBYTECODE", None)
    base["PYTHONPATH"] = os.pathsep.join(map(str, path))
    return {**base, **quiet, **offline, **local, **plain, **ray, **compiled, **more}


def arguments(case: Case, model: Path, out: Path, fleet: Fleet) -> list[str]:
    """Of slime's train.py, as a launch script has them."""
    options: dict[str, Any] = {
        "actor-num-nodes": 1,
        "actor-num-gpus-per-node": 2,
        "num-gpus-per-node": 2,
        "tensor-model-parallel-size": case.tp,
        "pipeline-model-parallel-size": case.pp,
        "expert-model-parallel-size": case.ep,
        "hf-checkpoint": model,
        "load": model,
        "ref-load": model,
        "save": out / "checkpoints",
        "save-hf": out / "saved" / "{rollout_id}",
        "save-interval": 1,
        # The model.
        "custom-model-provider-path": "tiny_model.provide",
        "num-layers": case.layers,
        "hidden-size": 32,
        "ffn-hidden-size": 64,
        "num-attention-heads": 4,
        "num-query-groups": 2,
        "kv-channels": 8,
        "vocab-size": 128,
        "seq-length": 64,
        "max-position-embeddings": 128,
        "normalization": "RMSNorm",
        "norm-epsilon": 1e-5,
        "rotary-base": 10000,
        "make-vocab-size-divisible-by": 1,
        "transformer-impl": "local",
        "attention-dropout": 0,
        "hidden-dropout": 0,
        "attention-backend": "unfused",
        # Training.
        "optimizer": "adam",
        "lr": 0.01,
        "min-lr": 0,
        "lr-decay-style": "constant",
        "weight-decay": 0,
        "micro-batch-size": 1,
        "global-batch-size": 2,
        "advantage-estimator": "grpo",
        "kl-loss-coef": 0.1,
        "kl-loss-type": "low_var_kl",
        # Rollouts, by slime's own function.
        "num-rollout": ROLLOUTS,
        "rollout-batch-size": 2,
        "n-samples-per-prompt": 2,
        "rollout-max-response-len": 8,
        "rollout-temperature": 1,
        "prompt-data": model.with_suffix(".prompts.jsonl"),
        "input-key": "input",
        "custom-rm-path": "own_hooks.reward",
        "eval-interval": 2,
        "n-samples-per-eval-prompt": 1,
        "eval-max-response-len": 4,
        "rollout-num-gpus-per-engine": case.gpus,
        "sglang-router-ip": "127.0.0.1",
        "sglang-router-port": fleet.router,
        "update-weight-buffer-size": 20_000,
        # What a user already has at the official hook points.
        "custom-megatron-init-path": "own_hooks.after_megatron_init",
        "custom-megatron-before-log-prob-hook-path": "own_hooks.before_log_prob",
        "custom-megatron-before-train-step-hook-path": "own_hooks.before_train_step",
        "rollout-data-postprocess-path": "own_hooks.after_rollout_data",
    }
    flags = [
        *("group-query-attention", "swiglu", "disable-bias-linear", "use-kl-loss", "use-cpu-initialization"),
        *("untie-embeddings-and-output-weights", "no-rope-fusion", "no-masked-softmax-fusion"),
        *("no-bias-swiglu-fusion", "no-persist-layer-norm", "no-gradient-accumulation-fusion"),
        "skip-eval-before-train",
        # Each sample of a prompt has a seed of its own, always the same: else they would be alike.
        "sglang-enable-deterministic-inference",
    ]
    if case.qkv_biases:
        flags.append("add-qkv-bias")
    if case.experts:
        options |= {"num-experts": case.experts, "moe-ffn-hidden-size": 64, "moe-layer-freq": 1}
    if case.transport in ("disk", "delta"):
        options |= {
            "update-weight-transport": "disk",
            "update-weight-disk-dir": out / "published",
            "custom-update-weight-post-write-path": "own_hooks.after_weights_are_written",
        }
        flags.append("update-weight-disk-keep-files")
    if case.transport == "delta":
        options |= {
            "update-weight-mode": "delta",
            "update-weight-local-checkpoint-dir": out / "pulled",
            "update-weight-delta-checksum": "xxh3-128",
        }
    if case.transport == "tensor":
        flags.append("colocate")
        flags += [] if case.offload else ["no-offload-train", "no-offload-rollout"]
    named = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    engines = ["--rollout-external-engine-addrs", *(f"127.0.0.1:{port}" for port in fleet.engines)]
    evaluation = ["--eval-prompt-data", "own", str(model.with_suffix(".prompts.jsonl"))]
    return [*named, *(f"--{flag}" for flag in flags), *engines, *evaluation, *case.more]


@contextlib.contextmanager
def stand_in_engines(
    places: Places, case: Case, model: Path, out: Path, environ: dict[str, str]
) -> Iterator[Fleet]:
    """While they run; the first also plays the router."""
    with contextlib.ExitStack() as stack:
        processes = []
        for index in range(case.engines):
            log = stack.enter_context((out / f"engine{index}.log").open("wb"))
            process = subprocess.Popen(
                [
                    *(str(places.python), str(HERE / "on_cpu" / "stand_in_engine.py")),
                    *(str(model), str(index), str(case.gpus), str(out / f"engine{index}.jsonl")),
                    *(["--offload"] if case.offload else []),
                ],
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
            stack.callback(_end, process)
            processes.append(process)
        ports = []
        for index, process in enumerate(processes):
            line = process.stdout.readline() if process.stdout else b""
            assert line, (out / f"engine{index}.log").read_text()[-3000:]
            ports.append(int(line))
        yield Fleet(ports[0], ports)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        process.communicate(timeout=20)  # closes its input, on which it ends
    if process.poll() is None:
        process.kill()
        process.wait(20)


#: What starts engines with: places, case, model, what the job tells, and the environment.
Engines = Callable[[Places, Case, Path, Path, dict[str, str]], AbstractContextManager[Fleet]]


def run_job(
    case: Case, out: Path, *, plugin: str = "", config: str = "", start_engines: Engines = stand_in_engines
) -> None:
    """The job, once; what it tells lies below `out`, what it records in ``out/runs``.

    `plugin`: empty (nothing of ours is on the path but the package), ``launch`` or ``env``: how a user
    switches it on. `config` is what is put into the configuration's file.
    """
    places = find_places()
    seen = out / "seen"
    seen.mkdir(parents=True)
    model = out / "model"
    with tempfile.TemporaryDirectory(prefix="sl-") as temporary:  # sockets have short paths
        Path(temporary, "torch_memory_saver_hook_mode_preload.abi3.so").touch()
        environ = job_environment(places, seen, Path(temporary))
        _checked(
            [str(places.python), str(HERE / "on_cpu" / "make_checkpoint.py"), str(model), _about(case)],
            environ,
        )
        command = [str(HERE / "on_cpu" / "drive.py"), str(places.slime / case.script)]
        prefix = [str(places.python)]
        if plugin:
            file = out / "config.yaml"
            file.write_text(f"out: {out / 'runs'}\n{config}")
            switched = {"SLIME_PROFILER_RUN_ID": RUN, "SLIME_PROFILER_LAUNCH": "once"}
            if plugin == "launch":
                prefix += ["-m", "slime_profiler_plugin.launch", "--config", str(file)]
            else:
                from slime_profiler_plugin.attach import environment_for

                switched |= environment_for(str(file), environ)
            environ |= switched
        engines = {**environ, **({"SLIME_PROFILER": str(out / "config.yaml")} if plugin else {})}
        engines["PYTHONPATH"] = os.pathsep.join(
            part for part in engines["PYTHONPATH"].split(os.pathsep) if not part.endswith("autoload")
        )
        engines.pop("SLIME_TESTS_SEEN")
        with start_engines(places, case, model, out, engines) as fleet:
            whole = [*prefix, *command, *arguments(case, model, out, fleet)]
            _checked(whole, environ, out / "job.log", tries=TRIES)


def _about(case: Case) -> str:
    return json.dumps({"layers": case.layers, "experts": case.experts, "qkv_biases": case.qkv_biases})


def _checked(command: list[str], environ: dict[str, str], log: Path | None = None, tries: int = 1) -> None:
    """Into a file: what Ray leaves behind inherits a pipe, and would hold it open."""
    with tempfile.TemporaryFile() as nowhere, contextlib.ExitStack() as stack:
        output = nowhere if log is None else stack.enter_context(log.open("w+b"))
        done = subprocess.run(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=TIMEOUT_S,
            check=False,
        )
        output.seek(0)
        told = output.read().decode(errors="replace")
    if done.returncode and tries > 1 and "timed out during startup" in told:
        _checked(command, environ, log, tries - 1)
    else:
        assert done.returncode == 0, told[-6000:]


def seen(out: Path) -> dict[str, dict[str, list[Any]]]:
    """By process of slime's and kind: what it did, in order."""
    found: dict[str, dict[str, list[Any]]] = {}
    for file in sorted((out / "seen").iterdir()):
        for line in map(json.loads, file.read_text().splitlines()):
            found.setdefault(line["who"], {}).setdefault(line["kind"], []).append(line["value"])
    return found


def engine_tells(out: Path, index: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / f"engine{index}.jsonl").read_text().splitlines()]


if __name__ == "__main__":
    # One job by hand: slime_runs.py OUT [plugin] [name=value ...]
    where, settings = Path(sys.argv[1]), dict(text.split("=") for text in sys.argv[2:])
    how = settings.pop("plugin", "")
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    numbers = {name: value if name == "transport" else int(value) for name, value in settings.items()}
    run_job(Case(**numbers), where, plugin=how)
