"""The verbs `env` and `doctor`: attaching a job, and what can be attached."""

from __future__ import annotations

import os
import sys

import click

from slime_profiler_plugin._show import print_line

from ._common import FAILED, FINDINGS, USAGE, fail, print_json


@click.command()
@click.option("--config", "name", default="timeline", show_default=True, help="A shipped one, or a path.")
@click.option("--into", metavar="JSON", help="The runtime environment of Ray to add to, such as {}.")
@click.option("--shell", is_flag=True, help="Lines for a shell instead: export NAME=VALUE.")
def env(name: str, into: str | None, shell: bool) -> None:
    """The environment that attaches a job: everything that inherits it records.

    Without --shell prints the JSON of a Ray runtime environment and nothing else: what --into has, and our
    two variables. Exit code: 0; 2 --into is no such JSON, or the configuration cannot be used.
    """
    from slime_profiler_plugin.attach import EnvironmentUsageError, add_to_runtime_env, shell_lines
    from slime_profiler_plugin.config import ConfigError

    if shell and into is not None:
        fail("--shell and --into cannot go together", USAGE)
    try:
        text = shell_lines(name, os.environ) if shell else add_to_runtime_env(into or "", name, os.environ)
    except (EnvironmentUsageError, ConfigError) as error:
        fail(str(error), USAGE)
    click.echo(text)


@click.command()
@click.option("--strict", is_flag=True, help="Exit 3 where a framework is absent or a target has changed.")
@click.option("--cluster", is_flag=True, help="Also ask a worker on every node of the Ray cluster.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def doctor(strict: bool, cluster: bool, as_json: bool) -> None:
    """What can be attached here: each hook target of each framework, and the phases lost without it.

    --cluster names the nodes without the package, with another version, or where autoload did not run; inside
    a submitted job, with what that job's runtime_env gives.

    Exit code: 0, also when a framework is absent; 1 no Ray cluster answered; 3 with --strict, when a
    framework is absent or a target is missing or changed, and with --cluster, when a node is named.
    """
    from slime_profiler_plugin.attach import (
        ClusterError,
        examine,
        format_findings,
        format_nodes,
        survey_cluster,
    )

    try:
        nodes = survey_cluster(os.environ) if cluster else []
    except ClusterError as error:
        fail(str(error), FAILED)
    findings = examine(os.environ)
    if as_json:
        told = {"nodes": [node.to_builtins() for node in nodes]} if cluster else {}
        print_json({**findings.public(), **told})
    else:
        for line in [*format_findings(findings), *(format_nodes(nodes) if cluster else ())]:
            print_line(line)
    is_bad = any(node.status != "ready" for node in nodes) or (strict and not findings.is_whole)
    if is_bad:
        sys.exit(FINDINGS)
