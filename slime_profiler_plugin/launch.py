"""``python -m slime_profiler_plugin.launch [--config NAME] train.py ...``: a program, attached.

The program takes this process's place, so its exit status, its signals and its tracebacks are its own. It
and its children get an id for their run, which counts where no job (Ray, SLURM, torchrun) names one.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

_USAGE: Final = (
    "usage: python -m slime_profiler_plugin.launch [--config NAME|PATH] [--communication-timeline] "
    "SCRIPT [ARGUMENT...]"
)
_FLAG: Final = "--communication-timeline"
_CONFIG: Final = "--config"
_DEFAULT: Final = "timeline"


class LaunchUsageError(ValueError):
    """The command line names no program, or an option that is unknown."""


class Launch(NamedTuple):
    """What becomes of this process: its new command, and what is added to its environment."""

    command: list[str]
    variables: dict[str, str]


def plan(arguments: Sequence[str], interpreter: Sequence[str], environ: Mapping[str, str]) -> Launch:
    """The process that takes the place of one with these `arguments`.

    `interpreter`: Python with the options it was started with. What ``SLIME_PROFILER`` says counts where no
    configuration is given; ``off`` always counts. Raises `LaunchUsageError`, `EnvironmentUsageError`,
    `config.ConfigError`.

    >>> plan(["--config", "kernels", "train.py", "--lr", "1"], ["python"], {}).command
    ['python', 'train.py', '--lr', '1']
    """
    from ._switch import SWITCH_VARIABLE, is_off
    from .attach import environment_for
    from .identity import LAUNCHED_VARIABLE, mint_run_id

    config = None
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        name, has_value, value = option.partition("=")
        if name == _CONFIG and (has_value or rest):
            config = value if has_value else rest.pop(0)
        elif option != _FLAG:
            raise LaunchUsageError(f"{option}: no such option, or it lacks its value\n{_USAGE}")
    if not rest:
        raise LaunchUsageError(_USAGE)
    command = [*interpreter, *(argument for argument in rest if argument != _FLAG)]
    switch = environ.get(SWITCH_VARIABLE, "").strip()
    variables = environment_for(switch if is_off(switch) else config or switch or _DEFAULT, environ)
    if not environ.get(LAUNCHED_VARIABLE):  # else it is part of what was launched
        variables[LAUNCHED_VARIABLE] = mint_run_id(time.time_ns(), secrets.token_hex(8))
    return Launch(command, variables)


def main() -> None:
    """Run the program in this process's place; exit status 2 where that cannot be."""
    from .attach import EnvironmentUsageError
    from .config import ConfigError

    if sys.flags.ignore_environment or sys.flags.no_site:
        sys.exit(
            _refuse("with -E, -I or -S Python reads no PYTHONPATH or no sitecustomize: nothing is attached")
        )
    own = sys.orig_argv
    interpreter = [sys.executable, *own[1 : own.index("-m")]] if "-m" in own else [sys.executable]
    try:
        launch = plan(sys.argv[1:], interpreter, os.environ)
    except (LaunchUsageError, EnvironmentUsageError, ConfigError) as error:
        sys.exit(_refuse(error))
    os.execve(launch.command[0], launch.command, {**os.environ, **launch.variables})


def _refuse(error: Exception | str) -> int:
    sys.stderr.write(f"slime_profiler_plugin.launch: {error}\n")
    return 2


if __name__ == "__main__":
    main()
