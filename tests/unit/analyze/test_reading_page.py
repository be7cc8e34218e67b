"""The commands of the page about reading a timeline print what stands below them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from command_line import run as call
from planted_run import write_planted_run

pytest.importorskip("duckdb")

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reading-a-timeline.md"


def _blocks():
    return re.findall(r"```console\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_every_command_prints_what_stands_below_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    write_planted_run(tmp_path / "runs")
    blocks = _blocks()
    assert len(blocks) == 5
    for block in blocks:
        for each in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = each.partition("\n")
            done = call(*shlex.split(command)[1:])
            assert done.exit_code == 0, done.stderr
            assert done.stdout.strip() == shown.strip(), command
