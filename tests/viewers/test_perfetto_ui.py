"""Merged files dropped on the real Perfetto UI in a real browser: what a person sees is what was recorded."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from browser import PICTURES, Browser, BrowserError, find_installed, run_browser, serve_ui

from slime_profiler_plugin.demo._processes import is_alive
from slime_profiler_plugin.layout import RunPaths, rollout_name
from slime_profiler_plugin.merge import merge_run
from slime_profiler_plugin.testing import write_synthetic_run

pytestmark = [pytest.mark.timeout(600)]
#: The beginnings of the names of the processes that must be seen.
SHOWN = ("actor rank 0 ·", "actor rank 1 ·", "engine 0 ·", "engine 1 ·")
PROCESSES = "select name || ' ' || pid as name from process where name like '%· phases' order by pid"
#: The UI calls a track by its thread, and the group that it stands in by its process.
SLICES = """
select s.id, s.name, s.ts, s.dur, t.name || ' ' || t.tid as track, p.name || ' ' || p.pid as process,
  (select count(*) from flow where slice_out = s.id) as arrows
from slice s join thread_track tt on tt.id = s.track_id join thread t using (utid) join process p using (upid)
"""
RECEIVES = SLICES + "where s.id in (select slice_in from flow where slice_out = {id}) order by p.name"
#: How far beside its ends an arrow's curve may lie, in CSS pixels.
BEND = 100
#: Where two tracks meet, lines may lie over the arrow.
BORDER = 2


class Ui(NamedTuple):
    """A browser, and the address of a Perfetto UI that has loaded nothing."""

    browser: Browser
    url: str

    def drop(self, path: Path) -> dict[str, Any]:
        """Drop a file on a fresh UI; what came of it."""
        self.browser.open(self.url)
        self.browser.do("drop", path=str(path))
        settled: dict[str, Any] = self.browser.do("settle")
        return settled


@pytest.fixture(scope="module")
def ui() -> Iterator[Ui]:
    PICTURES.mkdir(parents=True, exist_ok=True)
    with serve_ui() as url, run_browser(find_installed()) as browser:
        yield Ui(browser, url)


def merge_synthetic(out: Path) -> Path:
    made = write_synthetic_run(out, trainers=2, engines=2, buckets=5)
    return Path(merge_run([made.folder], 1).outputs[0].path)


def test_a_made_up_rollout(ui, tmp_path):
    path = merge_synthetic(tmp_path)
    check_loaded(ui.drop(path), path.name)
    check_shown(ui.browser, "synthetic", tmp_path)


@pytest.mark.ray
def test_a_rollout_of_the_demo(demo, ui, tmp_path):
    path = RunPaths.at(Path(demo["run_folder"])).merged_file(rollout_name(1))
    check_loaded(ui.drop(path), path.name)
    check_shown(ui.browser, "demo", tmp_path)


def test_the_page_of_open(ui, tmp_path):
    path = merge_synthetic(tmp_path)
    with run_open(path) as url:
        ui.browser.open(url)
        check_loaded(ui.browser.do("settle"))
        # unlike after a drop, where all are folded
        phases = [track for track in ui.browser.do("tracks") if "· phases" in track["name"]]
        assert len(phases) == len(SHOWN) + 1
        assert not any(track["folded"] for track in phases)
        check_shown(ui.browser, "open", tmp_path)


@contextlib.contextmanager
def run_open(path: Path) -> Iterator[str]:
    """The address that ``slime-profiler open`` tells, until it is told to end."""
    command = [sys.executable, "-m", "slime_profiler_plugin.cli", "open", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = next((line.strip() for line in process.stdout if line.startswith("http://")), None)
            assert url is not None
            yield url
            process.send_signal(signal.SIGTERM)  # SIGINT may be ignored, as in a shell's background
            assert process.wait(30) == 0
        finally:
            process.kill()


def check_loaded(settled: dict[str, Any], name: str = "") -> None:
    assert settled["dialogs"] == []
    assert settled["import_errors"] == 0
    assert settled["title"].startswith(name)


def check_shown(browser: Browser, name: str, scratch: Path) -> None:
    """Tracks of two ranks and two engines are on screen, and so is a bucket's arrow to each engine."""
    browser.do("tidy")
    processes = [row["name"] for row in browser.do("query", sql=PROCESSES)]
    groups = [next(process for process in processes if process.startswith(shown)) for shown in SHOWN]
    browser.do("unfold", names=groups)
    browser.do("resize", height=240)
    check_arrows(browser, groups, PICTURES / f"{name}_weight_sync.png", scratch / "without.png")
    assert browser.do("dialogs") == []

    browser.do("unselect")
    browser.do("zoom", **whole_rollout(browser))
    browser.do("unfold", names=[track["name"] for track in browser.do("tracks") if track["folded"]])
    browser.do("scroll", name=groups[0])
    browser.do("picture", path=str(PICTURES / f"{name}_rollout.png"))
    check_on_screen(browser.do("tracks"), groups)


def whole_rollout(browser: Browser) -> dict[str, int]:
    (span,) = browser.do("query", sql="select min(ts) as start_ns, max(ts + dur) as end_ns from slice")
    return span


def check_on_screen(tracks: list[dict[str, Any]], groups: list[str]) -> None:
    """The groups' names can be read, each with a track of its own below it."""
    names = [track["name"] for track in tracks]
    for group in groups:
        assert names.count(group) == 1
        assert [track for track in tracks if track["group"] == group]


def check_arrows(browser: Browser, groups: list[str], picture: Path, without: Path) -> None:
    sends = browser.do("query", sql=SLICES + "where s.name = 'bucket_send' order by s.ts")
    assert len(sends) >= 3
    at = max(range(1, len(sends) - 1), key=lambda index: sends[index]["dur"])
    send, after = sends[at], sends[at + 1]
    receives = browser.do("query", sql=RECEIVES.format(id=send["id"]))
    assert [(send["process"], r["process"]) for r in receives] == [
        (groups[0], groups[2]),
        (groups[0], groups[3]),
    ]
    assert {r["name"] for r in receives} == {"engine_receive"}

    view = {"start_ns": sends[at - 1]["ts"], "end_ns": after["ts"] + after["dur"]}
    margin = (view["end_ns"] - view["start_ns"]) // 20
    view = {"start_ns": view["start_ns"] - margin, "end_ns": view["end_ns"] + margin}
    browser.do("zoom", **view)
    (sync,) = browser.do(
        "query",
        sql=SLICES + f"where s.name = 'weight_sync' and p.name || ' ' || p.pid = '{groups[0]}' "
        f"and s.ts <= {send['ts']} and s.ts + s.dur >= {send['ts']}",
    )
    assert browser.do("select", id=sync["id"], arrows=0) == []
    browser.do("scroll", name=groups[0])
    browser.do("picture", path=str(without))
    listed = browser.do("select", id=send["id"], arrows=2)
    assert sorted((name, thread) for name, _delay, thread in listed) == [
        (r["name"], f"{r['track']} ({r['process']})") for r in receives
    ]
    browser.do("details", title="Following Flows")
    browser.do("picture", path=str(picture))

    tracks = browser.do("tracks")
    check_on_screen(tracks, groups)
    for receive in receives:
        check_drawn(browser, tracks, view, (send, receive), (without, picture))


def check_drawn(
    browser: Browser,
    tracks: list[dict[str, Any]],
    view: dict[str, int],
    ends: tuple[dict[str, Any], dict[str, Any]],
    pictures: tuple[Path, Path],
) -> None:
    """Selecting its start drew an unbroken line across all tracks between the two ends, and nothing else."""
    rows = [next(t for t in tracks if (t["group"], t["name"]) == (e["process"], e["track"])) for e in ends]
    crossed = [t for t in tracks if t["group"] and rows[0]["y"] < t["y"] < rows[1]["y"]]
    assert crossed
    for track in crossed:
        box = {
            "x": track["x"],
            "y": track["y"] + BORDER,
            "width": track["width"],
            "height": track["height"] - 2 * BORDER,
        }
        drawn = browser.do("differences", before=str(pictures[0]), after=str(pictures[1]), box=box)
        assert len(drawn) >= box["height"]
        assert all(drawn), f"a line of pixels without the arrow in {track}"
        per_ns = track["width"] / (view["end_ns"] - view["start_ns"])
        starts = [ends[0]["ts"] + ends[0]["dur"], *(e["ts"] for e in ends)]
        between = [track["x"] + (at - view["start_ns"]) * per_ns for at in starts]
        assert min(between) - BEND <= min(chain(*drawn))
        assert max(chain(*drawn)) <= max(between) + BEND


def test_a_file_cut_short_is_a_dialog(ui, tmp_path):
    path = tmp_path / "cut.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1')
    (told,) = ui.drop(path)["dialogs"]
    assert "incomplete" in told


def test_crossing_slices_are_import_errors(ui, tmp_path):
    path = tmp_path / "crossing.json"
    events = [f'{{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": {ts}, "dur": 10}}' for ts in (0, 5)]
    path.write_text(f'{{"traceEvents": [{", ".join(events)}]}}')
    settled = ui.drop(path)
    assert (settled["import_errors"], settled["dialogs"]) == (1, [])


@pytest.mark.parametrize("killed", [False, True])
def test_nothing_is_left_of_a_browser(ui, killed):
    installed = find_installed()
    with pytest.raises(BrowserError, match=re.escape("nowhere: ")), run_browser(installed) as browser:  # noqa: PT012 - the block's end is what is tested
        browser.open(ui.url)
        processes = browser.processes()
        assert len(processes) > 3
        if killed:
            browser._process.kill()
        browser.do("nowhere")
    assert not [process for process in processes if is_alive(process)]
    assert not browser._home.exists()
