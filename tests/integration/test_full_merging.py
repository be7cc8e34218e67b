"""Merging a run that is still being recorded, by several at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import whole_demo
from click.testing import CliRunner
from merged_demo import load, read_inputs

from slime_profiler_plugin.cli import main

pytest.importorskip("torch")
pytest.importorskip("ray")

pytestmark = [pytest.mark.full, pytest.mark.ray, pytest.mark.timeout(600)]
ROLLOUTS = 4
CONFIG = {
    "records": {"period_s": 0.1},
    "profiler": {"schedule": {"repeat": 0}, "ranks": [0]},
}


def merge(folder: Path, out: Path) -> tuple[int, str]:
    arguments = ["merge", str(folder), "--rollout", "all", "-o", str(out)]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    return result.exit_code, result.output


def check(folder: Path, out: Path) -> Iterator[int]:
    """Merge what is there so far; gives the number of files, when there are any."""
    code, told = merge(folder, out)
    if code == 1:
        # Before anything is written, and nothing else.
        assert "no record names a rollout" in told or "is no run folder" in told, told
        return
    # 3: some ranks have written nothing yet, or a window is just being written.
    assert code in (0, 3), told
    files = list(out.iterdir())
    for path in files:
        file = load(path)
        total = file["slime_profiler_conservation"]["total"]
        accounted = total["written"] + total["other_rollouts"] + total["described"]
        assert total["read"] == accounted + sum(total["dropped"].values())
    yield len(files)


def test_a_run_is_merged_while_it_is_recorded(tmp_path: Path) -> None:
    seen: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(whole_demo.run, tmp_path, CONFIG, rollouts=ROLLOUTS)
        while not running.done():
            for folder in (tmp_path / "runs").glob("*"):
                seen += check(folder, tmp_path / f"out-{len(seen)}")
        told = running.result()
    assert (told["exit_code"], seen) == (0, sorted(seen))
    assert any(0 < count < ROLLOUTS + 1 for count in seen), "never merged while it ran"
    folder = Path(told["run_folder"])
    assert merge(folder, tmp_path / "after")[0] == 0
    assert len(read_inputs(folder).windows) == ROLLOUTS
    for path in (folder / "merged").iterdir():
        assert (tmp_path / "after" / path.name).read_bytes() == path.read_bytes()
