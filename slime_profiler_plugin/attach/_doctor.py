"""What the doctor finds: each hook target of each framework, and whether this environment attaches."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from slime_profiler_plugin.config import SWITCH_VARIABLE, TIMELINE_VARIABLE, ConfigError, load_config

from ._environment import AUTOLOAD_FOLDER, PATH_VARIABLE
from ._frameworks import targets
from ._targets import TargetState, inspect_target
from .sglang.windows import describe_windows

#: The distribution whose version a framework's is.
_DISTRIBUTIONS: Final = {"megatron": "megatron-core"}
_FAULTS: Final = ("missing", "changed")


class Findings(NamedTuple):
    """`versions` by framework, ``None`` where it is not installed. `switch`: what switches recording on here.
    `is_first`: our folder stands first on ``PYTHONPATH``, ``None``: it is not there. `engine_windows`: what
    becomes of profiler windows of engines; ``None``: none are asked for here.
    """

    versions: dict[str, str | None]
    states: list[TargetState]
    switch: str | None
    is_first: bool | None
    engine_windows: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether every framework is here, with every target as it was."""
        return all(version is not None for version in self.versions.values()) and not self.faults

    @property
    def faults(self) -> list[TargetState]:
        """Targets that are missing or have changed, but for those that some versions lack."""
        return [state for state in self.states if state.status in _FAULTS and not state.target.optional]

    def public(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "frameworks": self.versions,
            "autoload": {"switch": self.switch, "first_on_path": self.is_first},
            "engine_windows": self.engine_windows,
            "targets": [
                {**state.target._asdict(), "status": state.status, "reason": state.reason}
                for state in self.states
            ],
        }


def examine(environ: Mapping[str, str]) -> Findings:
    """Look every target up; imports the frameworks that are installed.

    What they print meanwhile goes to stderr, by whatever way: stdout is for the findings.
    """
    with _stdout_to_stderr():
        states = [inspect_target(target) for target in targets()]
    versions: dict[str, str | None] = {}
    for state in states:
        framework = state.target.framework
        if state.status != "absent":
            versions[framework] = _version(framework)
        else:
            versions.setdefault(framework, None)
    path = environ.get(PATH_VARIABLE, "").split(os.pathsep)
    ours = str(AUTOLOAD_FOLDER)
    return Findings(
        versions,
        states,
        environ.get(SWITCH_VARIABLE) or environ.get(TIMELINE_VARIABLE) or None,
        path[0] == ours if ours in path else None,
        _describe_windows(environ),
    )


def format_findings(findings: Findings) -> list[str]:
    """Lines of text."""
    lines = []
    for framework, version in findings.versions.items():
        own = [state for state in findings.states if state.target.framework == framework]
        if version is None:
            lines.append(f"{framework}: not installed")
            continue
        good = sum(state.status == "attached" for state in own)
        lines.append(f"{framework} {version}: {good} of {len(own)} targets as expected")
        for state in own:
            if state.status == "attached":
                continue
            what = "not in this version" if state.target.optional else state.status
            lines.append(f"  {what}: {state.target.module}.{state.target.name}: {state.reason}")
            lines.append(f"    lost: {', '.join(state.target.phases)}")
    lines.append(f"switch: {findings.switch or 'none is set in this environment'}")
    place = {True: "first on PYTHONPATH", False: "on PYTHONPATH, but not first", None: "not on PYTHONPATH"}
    lines.append(f"autoload folder: {place[findings.is_first]} (`slime-profiler env` puts it there)")
    if findings.engine_windows is not None:
        lines.append(f"profiler windows of engines: {findings.engine_windows}")
    lines.append("not seen from here: an actor whose own env_vars set PYTHONPATH has no such folder")
    return lines


def _describe_windows(environ: Mapping[str, str]) -> str | None:
    try:
        config = load_config(None, environ)
    except ConfigError:  # whoever starts to record tells it
        return None
    return None if config is None or config.profiler is None else describe_windows(config.profiler)


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    out, errors = 1, 2
    sys.stdout.flush()
    kept = os.dup(out)
    try:
        os.dup2(errors, out)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, out)
        os.close(kept)


def _version(framework: str) -> str:
    try:
        return importlib.metadata.version(_DISTRIBUTIONS.get(framework, framework))
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"
