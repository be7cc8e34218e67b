"""The tab in a real TensorBoard in a real browser: what stands on screen is what the routes answer."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from browser import PICTURES, Browser, find_installed, run_browser

from slime_profiler_plugin.testing import write_synthetic_run

pytestmark = [pytest.mark.timeout(600)]
PROGRAM = Path(__file__).with_name("tensorboard_ui.mjs")
ROUTES = "data/plugin/slime_rl_timeline/"
START_S = 90
#: What the Perfetto UI itself says where its makers' servers and a native trace_processor are out of reach,
#: its other warnings, and a warning of TensorBoard's own page.
NOISE = re.compile(
    r"is_internal_user|127\.0\.0\.1:9001|navigate-to|^warning: .*(/perfetto/|Three\.js)", re.DOTALL
)


class Server(NamedTuple):
    """A TensorBoard: its address and what it has written."""

    url: str
    log: Path

    def ask(self, route: str, **query: Any) -> Any:
        """What a route of the tab answers."""
        with urllib.request.urlopen(f"{self.url}{ROUTES}{route}?{urlencode(query)}", timeout=60) as answer:
            return json.load(answer)


@contextlib.contextmanager
def run_tensorboard(log_folder: Path, scratch: Path) -> Iterator[Server]:
    """TensorBoard on a free port of loopback, as a user starts it."""
    pytest.importorskip("tensorboard", exc_type=ImportError)
    if "slime_rl_timeline" not in entry_points(group="tensorboard_plugins").names:
        pytest.skip("the project is not installed, so TensorBoard does not know the tab: run `make install`")
    log = scratch / "tensorboard.log"
    program = Path(sys.executable).with_name("tensorboard")
    environment = {**os.environ, "XDG_CACHE_HOME": str(scratch / "cache")}
    command = [str(program), "--logdir", str(log_folder), "--host", "127.0.0.1", "--port", "0"]
    with (
        log.open("w") as stream,
        subprocess.Popen(command, stdout=stream, stderr=stream, env=environment) as server,
    ):
        try:
            found = None
            until = time.monotonic() + START_S
            while found is None and server.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
                found = re.search(r"http://127\.0\.0\.1:\d+/", log.read_text())
            assert found is not None, log.read_text()
            yield Server(found[0], log)
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    PICTURES.mkdir(parents=True, exist_ok=True)
    with run_browser(find_installed(), PROGRAM) as started:
        yield started


def open_tab(browser: Browser, server: Server, *, dark: bool = False, **link: Any) -> None:
    words = "".join(f"&p.slime_rl_timeline.{name}={value}" for name, value in link.items())
    browser.do("open", url=server.url, link=words, dark=dark)


def check_quiet(browser: Browser, server: Server) -> None:
    """Nobody complained: neither the pages on the console, nor TensorBoard's security validator."""
    assert [line for line in browser.do("console") if not NOISE.search(line)] == []
    assert "In 3.0, this warning will become an error" not in server.log.read_text()


def whole_numbers(values: list[str | None]) -> list[int]:
    return [int(value) for value in values if value is not None]


@pytest.mark.ray
def test_every_view_shows_what_the_routes_answer(demo, browser, tmp_path):
    folder = Path(demo["run_folder"])
    with run_tensorboard(folder.parent, tmp_path) as server:
        check_views(browser, server, folder.name)
        check_quiet(browser, server)
        for dark in (False, True):
            open_tab(browser, server, dark=dark, run=folder.name, attempt=0, rollout=1)
            for view in ("overview", "ranks", "sync", "timeline", "health"):
                browser.do("view", name=view)
                if view == "timeline":
                    browser.do("query", sql="select 1")
                browser.do("picture", path=str(PICTURES / f"tab_{view}_{'dark' if dark else 'light'}.png"))


def check_views(browser: Browser, server: Server, run: str) -> None:
    query = {"run": run, "attempt": 0}
    open_tab(browser, server, run=run, attempt=0, rollout=1, view="overview")
    told = server.ask("overview", **query)
    browser.do("view", name="overview")
    shown = whole_numbers(browser.do("attributes", selector="#overview td[data-ns]", name="data-ns"))
    assert shown == [
        ns for r in told["rollouts"] for ns in (r["wall_ns"], *(r["parts_ns"][p] for p in told["parts"]))
    ]
    browser.do("click", selector="#overview tbody tr:nth-child(2)")
    browser.do("wait", selector='main[data-view="ranks"][data-done]')
    assert browser.do("value", selector="#rollout") == str(told["rollouts"][1]["rollout"])

    browser.do("choose", selector="#rollout", value="1")
    browser.do("view", name="ranks")
    check_ranks(browser, server.ask("ranks", **query, rollout=1))

    browser.do("view", name="sync")
    syncs = server.ask("sync", **query)["syncs"]
    assert syncs
    shown = whole_numbers(browser.do("attributes", selector="#ledger td[data-bytes]", name="data-bytes"))
    assert shown == [sync["bytes"] for sync in syncs]
    (one,) = server.ask("sync", **query, rollout=1)["syncs"]
    shown = whole_numbers(browser.do("attributes", selector=".pieces td[data-ns]", name="data-ns"))
    assert shown == [*one["pieces_ns"].values(), one["remainder_ns"]]
    assert browser.do("count", selector="main svg rect") == len(one["slices"])

    browser.do("view", name="timeline")
    (found,) = browser.do("query", sql="select count(*) as n from slice where name = 'bucket_send'")
    assert found["n"] == sum(piece["phase"] == "bucket_send" for piece in one["slices"])
    assert browser.do("count", selector="#download") == browser.do("count", selector="#outside") == 1

    browser.do("view", name="health")
    health = server.ask("health", run=run)
    cells = browser.do("cells", selector="#processes")
    assert [row[0] for row in cells] == [process["name"] for process in health["processes"]]
    assert "rollout=1" in browser.do("address")


def check_ranks(browser: Browser, told: dict[str, Any]) -> None:
    """By keyboard to some cells, which tell their numbers."""
    for _ in range(2):
        browser.do("press", selector=".heat canvas", key="ArrowDown")
    for phase in range(3):
        row = told["rows"][phase]
        column = told["columns"][1]
        text = browser.do("text", selector="#rank-detail")
        assert text.startswith(f"{column['name']} · {row['phase']}: ")
        if row["total_ns"][1] is not None:
            (shown,) = browser.do("attributes", selector="#rank-cell", name="data-ns")
            assert int(shown) == row["total_ns"][1]
        browser.do("press", selector=".heat canvas", key="ArrowRight")


def test_a_run_that_grows_shows_its_new_rollouts_by_itself(browser, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    write_synthetic_run(runs, rollouts=2)
    with run_tensorboard(runs, tmp_path) as server:
        open_tab(browser, server)
        browser.do("wait", selector='main[data-view="overview"][data-done]')
        assert browser.do("options", selector="#rollout") == ["initial", "0", "1"]
        write_synthetic_run(runs, rollouts=3)
        browser.do("wait", selector='#rollout option[value="2"]', attached=True)
        assert browser.do("options", selector="#rollout") == ["initial", "0", "1", "2"]
        assert browser.do("value", selector="#rollout") == "2"
        browser.do("press", selector="main", key="4")
        browser.do("wait", selector='main[data-view="timeline"][data-done]')
        browser.do("press", selector="main", key="1")
        browser.do("wait", selector='main[data-view="overview"][data-done]')
        browser.do("press", selector="main", key="[")
        assert browser.do("value", selector="#rollout") == "1"
        shutil.rmtree(runs / "synthetic")
        browser.do("wait", selector='main[data-view="none"]')
        assert "--logdir" in browser.do("text", selector="main")


def test_names_from_traces_are_text(browser, tmp_path):
    name = "<img src=x onerror=alert(1)>"
    made = write_synthetic_run(tmp_path / "runs", run_id=name)
    for process in made.processes:
        process.process.host = f"{name}host"
        process.write(tmp_path / "runs")
    with run_tensorboard(tmp_path / "runs", tmp_path) as server:
        open_tab(browser, server)
        assert name in browser.do("options", selector="#run")[0]
        for view in ("overview", "ranks", "sync", "health"):
            browser.do("view", name=view)
            assert browser.do("count", selector="img") == 0
        assert name in browser.do("text", selector="main")
        check_quiet(browser, server)
