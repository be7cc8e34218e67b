"""The command line: verbs that call the library and print. No logic of their own."""

from __future__ import annotations

import click

from slime_profiler_plugin import __version__

from ._attach import doctor, env
from ._check import check
from ._common import NAME
from ._config import config
from ._demo import demo
from ._ls import list_
from ._merge import merge
from ._open import open_trace
from ._tables import report, sql
from ._verbs import Verbs

__all__ = ["main"]


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=NAME)
@click.pass_context
def main(context: click.Context) -> None:
    """One timeline of an RL post-training run."""
    from slime_profiler_plugin._exit import orderly_exit

    context.with_resource(orderly_exit())


for verb in (merge, check, open_trace, list_, report, sql, env, doctor, config, demo):
    main.add_command(verb)
