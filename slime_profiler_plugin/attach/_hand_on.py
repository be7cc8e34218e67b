"""A switch that only the driver knows, for the workers of its job."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

#: Ray's, in the driver of a submitted job: what the job's workers are started with.
JOB_VARIABLE: Final = "RAY_JOB_CONFIG_JSON_ENV_VAR"
#: What says whether, how and where to record.
_OURS: Final = ("SLIME_PROFILER", "SLIME_COMMUNICATION_TIMELINE", "SLIME_PROFILER_OUT")


def hand_on(environ: MutableMapping[str, str]) -> None:
    """Have the workers of a submitted job inherit the switch, unless the job says something else itself.

    Before Ray is connected, which happens at slime's first call of it. A cluster that the driver starts
    inherits its environment anyway. Raises `ValueError` and `TypeError` for what is no such description.

    >>> environ = {"SLIME_PROFILER": "timeline", JOB_VARIABLE: '{"runtime_env": {"env_vars": {"A": "1"}}}'}
    >>> hand_on(environ)
    >>> environ[JOB_VARIABLE]
    '{"runtime_env": {"env_vars": {"SLIME_PROFILER": "timeline", "A": "1"}}}'
    """
    text = environ.get(JOB_VARIABLE)
    if not text:
        return
    import json  # not in every process that is attached

    job: dict[str, Any] = json.loads(text)
    runtime_env = job.get("runtime_env") or {}
    variables = runtime_env.get("env_vars") or {}
    ours = {name: environ[name] for name in _OURS if environ.get(name)}
    if ours.keys() - variables.keys():
        job["runtime_env"] = {**runtime_env, "env_vars": {**ours, **variables}}
        environ[JOB_VARIABLE] = json.dumps(job)
