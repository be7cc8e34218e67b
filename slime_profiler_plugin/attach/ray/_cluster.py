"""Which nodes of a Ray cluster would be attached, asked of a worker on each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

import slime_profiler_plugin
from slime_profiler_plugin._switch import SWITCH_VARIABLE, is_off
from slime_profiler_plugin.attach._environment import AUTOLOAD_FOLDER, add_to_runtime_env

NodeStatus: TypeAlias = Literal["ready", "no package", "other version", "no autoload", "no answer"]

#: For the workers of all nodes to start, each of which imports Ray.
_WORKERS_S: Final = 60.0
_CONNECT_S: Final = 30.0
#: On top of both: to start Python, and to leave.
_REST_S: Final = 20.0
_PROGRAM: Final = "from slime_profiler_plugin.attach.ray._survey import main; main()"
#: Ray sets it in the driver of a submitted job.
_JOB_VARIABLE: Final = "RAY_JOB_CONFIG_JSON_ENV_VAR"
#: Tasks are not recorded, with any configuration.
_ANY_CONFIG: Final = "timeline"
#: The last line of an error says what it was.
_LONGEST: Final = 300


class ClusterError(RuntimeError):
    """No Ray cluster answered; the message says why."""


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A node by its address, and what a worker found there; `detail` says it in a sentence."""

    address: str
    host: str
    node_id: str
    status: NodeStatus
    detail: str
    version: str | None = None

    def to_builtins(self) -> dict[str, Any]:
        """For JSON."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


class _RuntimeEnv(msgspec.Struct):
    env_vars: dict[str, str]


class _Answer(msgspec.Struct, kw_only=True):
    """What `_survey` prints of a node."""

    node_id: str
    address: str
    host: str
    failure: str | None = None
    broken: str | None = None
    version: str | None = None
    on_path: bool = False
    folder: bool = False
    switch: str | None = None
    autoload: bool = False


def survey_cluster(environ: Mapping[str, str], *, timeout_s: float = _WORKERS_S) -> list[NodeReport]:
    """Start one task of no CPUs on every node that is alive, and say what it finds, by address.

    The cluster is that of ``RAY_ADDRESS`` in `environ`, else the one that Ray finds. The tasks get what
    `add_to_runtime_env` gives a job; inside a submitted job, what that job has. Takes at most `timeout_s`
    seconds for all nodes together, and less than a minute to connect and leave. Raises `ClusterError` when
    no cluster answers.
    """
    address = environ.get("RAY_ADDRESS") or "auto"
    asked = {
        "address": address,
        "env_vars": {} if _JOB_VARIABLE in environ else _prepared(environ),
        "autoload": str(AUTOLOAD_FOLDER),
        "connect_s": _CONNECT_S,
        "timeout_s": timeout_s,
    }
    longest_s = _CONNECT_S + timeout_s + _REST_S
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(environ),
        cwd="/",  # Ray shows a driver's folder to the workers, which must find the package by themselves
        start_new_session=True,
    )
    with process:
        try:
            out, errors = process.communicate(msgspec.json.encode(asked), longest_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise ClusterError(
                f"the Ray cluster at {address!r} did not answer in {longest_s:.0f} s"
            ) from None
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        told = errors.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
        raise ClusterError(f"no Ray cluster answers at {address!r}: {told[-1][:_LONGEST]}")
    answers = msgspec.json.decode(out.splitlines()[-1], type=list[_Answer])
    reports = [_judge(answer) for answer in answers]
    return sorted(reports, key=lambda report: (report.address, report.node_id))


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ`; the one who asks is no part of a run, and finds this package."""
    root = Path(slime_profiler_plugin.__file__).parents[1]
    environment = {name: value for name, value in environ.items() if not name.startswith("SLIME_")}
    environment["SLIME_PROFILER"] = "off"
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), environ.get("PYTHONPATH")]))
    return environment


def _judge(answer: _Answer) -> NodeReport:
    here = slime_profiler_plugin.__version__
    status: NodeStatus = "ready"
    detail = f"version {answer.version}, autoload ran"
    if answer.failure is not None:
        status, detail = "no answer", answer.failure
    elif answer.broken is not None:
        status, detail = "no package", f"the package cannot be imported: {answer.broken}"
    elif answer.version is None:
        status, detail = "no package", "slime-profiler-plugin is not installed there"
    elif answer.version != here:
        status, detail = "other version", f"version {answer.version} there, {here} here"
    elif not answer.autoload:
        status, detail = "no autoload", _tell_why(answer)
    return NodeReport(
        address=answer.address,
        host=answer.host,
        node_id=answer.node_id,
        status=status,
        detail=detail,
        version=answer.version,
    )


def _tell_why(answer: _Answer) -> str:
    if not answer.on_path:
        return f"a worker's PYTHONPATH does not hold {AUTOLOAD_FOLDER}: its runtime_env says another"
    if not answer.folder:
        return f"there is no folder {AUTOLOAD_FOLDER}: the package is installed elsewhere there"
    if answer.switch is None or is_off(answer.switch):
        return f"nothing switches recording on: {SWITCH_VARIABLE} is {answer.switch or 'not set'}"
    return f"{AUTOLOAD_FOLDER} is on a worker's PYTHONPATH, and another sitecustomize was found before it"


def _prepared(environ: Mapping[str, str]) -> dict[str, str]:
    others = {name: value for name, value in environ.items() if name != SWITCH_VARIABLE}
    return msgspec.json.decode(add_to_runtime_env("", _ANY_CONFIG, others), type=_RuntimeEnv).env_vars


def format_nodes(reports: Sequence[NodeReport]) -> list[str]:
    """Lines of text, with what nobody can see from here."""
    lines = [
        f"node {report.address} ({report.host}, {report.node_id[:8]}): {report.status}: {report.detail}"
        for report in reports
    ]
    lines.append(
        "not seen: an actor whose own env_vars set PYTHONPATH, which drops the job's and our folder with it"
    )
    return lines
