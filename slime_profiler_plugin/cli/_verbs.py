"""A group of verbs."""

from __future__ import annotations

from typing import Any

import click

from slime_profiler_plugin._show import accept_all_text, give_up_stdout

from ._common import FAILED, fail, tell


class Verbs(click.Group):
    """Verbs in the order in which they are defined; what they print may find no room."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        accept_all_text()
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # no reader at all is click's own matter
            give_up_stdout()
            fail(tell(error) if error.filename else f"standard output: {tell(error)}", FAILED)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click calls it with one
        return list(self.commands)
