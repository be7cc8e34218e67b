"""The command line in this process, its two streams apart."""

from __future__ import annotations

from click.testing import CliRunner, Result

from slime_profiler_plugin import cli


def run(*arguments: object, **environ: str | None) -> Result:
    """What ``slime-profiler`` with these arguments gives; ``None`` in `environ` takes a variable away."""
    try:
        runner = CliRunner(mix_stderr=False)
    except TypeError:  # since click 8.2 the streams are always apart
        runner = CliRunner()
    return runner.invoke(cli.main, [str(argument) for argument in arguments], env=environ)
