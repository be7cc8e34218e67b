"""The verbs of `config`."""

from __future__ import annotations

import click

from slime_profiler_plugin._show import print_line

from ._common import FAILED, fail, print_json
from ._verbs import Verbs


@click.group(cls=Verbs)
def config() -> None:
    """Configurations: those that are shipped, and a file of your own."""


@config.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the names as JSON.")
def config_list(as_json: bool) -> None:
    """Names of the shipped configurations."""
    from slime_profiler_plugin.config import list_configs

    names = list_configs()
    if as_json:
        print_json(list(names))
    else:
        for name in names:
            print_line(name)


@config.command("show")
@click.argument("source", metavar="NAME|FILE")
def config_show(source: str) -> None:
    """The text of a shipped configuration, or of FILE once it is checked, comments included.

    FILE has a / or ends in .yaml or .yml. Exit code: 0 it can be used; 1 it cannot.
    """
    from slime_profiler_plugin.config import ConfigError, read_config_text

    try:
        click.echo(read_config_text(source), nl=False)
    except ConfigError as error:
        fail(str(error), FAILED)
