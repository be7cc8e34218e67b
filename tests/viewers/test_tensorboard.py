"""The tab in a real TensorBoard in a real browser: numbers on screen are those of the report."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import PICTURES, Browser, find_installed, run_browser
from tensorboard_server import PROGRAM, Server, check_quiet, open_tab, run_tensorboard

pytest.importorskip("duckdb")

from slime_profiler_plugin.testing import write_synthetic_run

pytestmark = [pytest.mark.timeout(900)]
VIEWS = ("overview", "ranks", "sync", "timeline", "health")
#: What stands where there is no value.
NOTHING = "\N{EN DASH}"
#: What one of each unit on screen is in the unit of the report.
IN_MS = {"s": 1e3, "ms": 1.0, "µs": 1e-3, "ns": 1e-6}
IN_BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    PICTURES.mkdir(parents=True, exist_ok=True)
    with run_browser(find_installed(), PROGRAM) as started:
        yield started


def report(folder: Path, scratch: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    """``slime-profiler report --format json``, in a process and with a cache of its own: the views."""
    command = [sys.executable, "-m", "slime_profiler_plugin.cli", "report", str(folder), "--format", "json"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(scratch / "report")}
    done = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True, env=environment)
    views: dict[str, dict[str, Any]] = json.loads(done.stdout)["views"]
    return views


def read_number(text: str) -> float:
    """A number on screen, in the unit of the report."""
    number, _, unit = text.partition(" ")
    return float(number) * {**IN_MS, **IN_BYTES}.get(unit, 1.0)


def check_row(shown: dict[str, dict[str, Any]], wanted: dict[str, Any], units: dict[str, str]) -> None:
    """Each cell of a row holds the value of the report and shows it with at least two and a half digits."""
    assert shown
    for column, cell in shown.items():
        value = wanted[column]
        assert cell["value"] == value, column
        if value is None or isinstance(value, bool):
            assert cell["text"] == {None: NOTHING, True: "yes", False: "no"}[value]
        elif isinstance(value, str) or not (units[column] or isinstance(value, float)):
            assert cell["text"].removesuffix(" ⚠") == str(value)
        else:
            assert math.isclose(read_number(cell["text"]), value, rel_tol=5e-3, abs_tol=1e-9), column


def check_table(browser: Browser, selector: str, view: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """A table on screen has these rows of a view, and every column in which one of them says something."""
    units = {column["name"]: column["unit"] for column in view["columns"]}
    shown = browser.do("report", selector=selector)
    assert len(shown) == len(rows)
    assert rows
    for one, row in zip(shown, rows, strict=True):
        check_row(one, row, units)
    left_out = set(units) - set(shown[0])
    for row in rows:
        told = {name for name in left_out if row[name] not in (None, False, 0)}
        assert told <= {"attempt", "role", "rollout", "sync", "source", "transport"}


@pytest.mark.ray
def test_every_view_shows_the_numbers_of_the_report(demo, browser, tmp_path):
    folder = Path(demo["run_folder"])
    with run_tensorboard(folder.parent, tmp_path) as server:
        open_tab(browser, server, run=folder.name, attempt=0, rollout=1, view="overview")
        browser.do("view", name="overview")
        check_overview(browser, report(folder, tmp_path, "--view", "rollout")["rollout"])
        browser.do("choose", selector="#rollout", value="1")
        check_ranks(browser, report(folder, tmp_path, "--view", "ranks", "--rollout", "1")["ranks"])
        check_sync(browser, report(folder, tmp_path, "--view", "sync", "--view", "bucket"))
        check_timeline(browser, server, folder.name)
        check_health(browser, server, folder)
        check_quiet(browser, server)


@pytest.mark.ray
def test_pictures_of_every_view_light_and_dark(demo, browser, tmp_path):
    folder = Path(demo["run_folder"])
    with run_tensorboard(folder.parent, tmp_path) as server:
        for dark in (False, True):
            open_tab(browser, server, dark=dark, run=folder.name, attempt=0, rollout=1)
            for view in VIEWS:
                browser.do("view", name=view)
                if view == "timeline":
                    browser.do("query", sql="select 1")
                if view == "ranks":
                    browser.do("press", selector=".heat canvas", key="ArrowDown")
                browser.do("picture", path=str(PICTURES / f"tab_{view}_{'dark' if dark else 'light'}.png"))
        check_quiet(browser, server)


def check_overview(browser: Browser, view: dict[str, Any]) -> None:
    for role in ("actor", "all"):
        browser.do("choose", selector="#role", value=role)
        rows = [row for row in view["rows"] if row["role"] == role]
        check_table(browser, "#overview", view, rows)
        # The stack of a rollout is its wall time and the overlap.
        for row in rows:
            bars = f'main svg g[data-rollout="{row["rollout"]}"]'
            stack = sum(float(h) for h in browser.do("attributes", selector=f"{bars} rect", name="height"))
            (wall,) = (float(y) for y in browser.do("attributes", selector=f"{bars} .mark", name="y1"))
            assert math.isclose(stack / (236 - wall), 1 + row["overlap_ms"] / row["wall_ms"], rel_tol=1e-3)
    trends = sum(row["trend"] is not None for row in rows)
    assert browser.do("count", selector="main svg .trend") == (trends > 1)
    browser.do("click", selector="#overview tbody tr:nth-child(2)")
    browser.do("wait", selector='main[data-view="ranks"][data-done]')
    assert browser.do("value", selector="#rollout") == rows[1]["rollout"]


def check_ranks(browser: Browser, view: dict[str, Any]) -> None:
    """Walks over the heat map by keyboard, row by row, and compares each cell with the report."""
    browser.do("view", name="ranks")
    units = {column["name"]: column["unit"] for column in view["columns"]}
    names: dict[int, str] = {}
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for row in view["rows"]:
        names[row["process"]] = row["role"] if row["rank"] is None else f"{row['role']} {row['rank']}"
        cells[names[row["process"]], row["phase"]] = row
    assert len(set(names.values())) == len(names)
    phases = len({row["phase"] for row in view["rows"]})
    seen = set()
    browser.do("press", selector=".heat canvas", key="ArrowDown")
    for place in range(len(names)):
        # There and back again, as one ploughs.
        key = "ArrowLeft" if place % 2 else "ArrowRight"
        for _ in range(phases):
            told = browser.do("text", selector="#rank-detail strong").rstrip(": ")
            name, phase = told.split(" · ")
            seen.add((name, phase))
            wanted = cells.get((name, phase))
            if wanted is None:
                assert "did not run" in browser.do("text", selector="#rank-detail")
            else:
                (shown,) = browser.do("report", selector="#rank-cell")
                assert {"count", "total_ms", "median_ms", "peers"} <= set(shown)
                check_row(shown, wanted, units)
            browser.do("press", selector=".heat canvas", key=key)
        browser.do("press", selector=".heat canvas", key="ArrowDown")
    assert set(cells) <= seen


def check_sync(browser: Browser, views: dict[str, dict[str, Any]]) -> None:
    browser.do("view", name="sync")
    syncs = views["sync"]["rows"]
    own = [row for row in syncs if row["rollout"] == "1"]
    check_table(browser, "#ledger", views["sync"], own + [row for row in syncs if row["rollout"] != "1"])
    browser.do("click", selector="#ledger tbody tr:nth-child(1)")
    browser.do("wait", selector='main[data-view="sync"][data-done]')
    (one,) = own
    buckets = [row for row in views["bucket"]["rows"] if row["sync"] == one["sync"]]
    check_table(browser, "#buckets", views["bucket"], buckets)
    (drawn,) = (browser.do("count", selector='#gantt rect[data-phase="bucket_send"]'),)
    assert drawn == len(buckets)
    sent = sum(
        int(ns)
        for ns in browser.do("attributes", selector='#gantt rect[data-phase="bucket_send"]', name="data-ns")
    )
    assert math.isclose(sent / 1e6, one["send_ms"], rel_tol=1e-9)
    pieces = {name: cell for row in browser.do("report", selector=".pieces") for name, cell in row.items()}
    assert {"send_ms", "remainder_ms"} <= set(pieces)
    check_row(pieces, one, {column["name"]: column["unit"] for column in views["sync"]["columns"]})


def check_timeline(browser: Browser, server: Server, run: str) -> None:
    browser.do("view", name="timeline")
    (found,) = browser.do("query", sql="select count(*) as n from slice where name = 'bucket_send'")
    table = server.ask("sync", run=run, attempt=0)["table"]
    at = [column["name"] for column in table["columns"]]
    assert found["n"] == sum(
        row[at.index("buckets")] for row in table["rows"] if row[at.index("rollout")] == "1"
    )
    assert browser.do("count", selector="#download") == browser.do("count", selector="#outside") == 1


def check_health(browser: Browser, server: Server, folder: Path) -> None:
    command = [sys.executable, "-m", "slime_profiler_plugin.cli", "ls", str(folder), "--json"]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    processes = listed["runs"][0]["processes"]
    browser.do("view", name="health")
    cells = browser.do("cells", selector="#processes")
    assert [(row[0], row[2], int(row[3])) for row in cells] == [
        (each["name"], each["host"], each["pid"]) for each in processes
    ]
    for row, each in zip(cells, processes, strict=True):
        assert row[6].startswith(each["ending"])
        assert math.isclose(read_number(row[-1]), each["bytes"], rel_tol=5e-3)
    assert server.ask("health", run=folder.name)["processes"][0]["name"] == cells[0][0]


def test_keys_and_links_lead_everywhere(browser, tmp_path):
    write_synthetic_run(tmp_path / "runs")
    write_synthetic_run(tmp_path / "runs", run_id="second", start_ns=6_000_000_000_000)
    with run_tensorboard(tmp_path / "runs", tmp_path) as server:
        open_tab(browser, server)
        browser.do("wait", selector='main[data-view="overview"][data-done]')
        assert browser.do("value", selector="#run") == "second"
        for key, view in enumerate(VIEWS, 1):
            browser.do("press", selector="main", key=str(key))
            browser.do("wait", selector=f'main[data-view="{view}"][data-done]')
        browser.do("press", selector="main", key="[")
        assert browser.do("value", selector="#rollout") == "0"
        address = browser.do("address")
        assert re.search(r"p\.slime_rl_timeline\.rollout=0(&|$)", address)
        open_tab(browser, server, run="synthetic", attempt=0, rollout="initial", view="sync")
        browser.do("wait", selector='main[data-view="sync"][data-done]')
        chosen = {name: browser.do("value", selector=f"#{name}") for name in ("run", "attempt", "rollout")}
        assert chosen == {"run": "synthetic", "attempt": "0", "rollout": "initial"}
        check_quiet(browser, server)
