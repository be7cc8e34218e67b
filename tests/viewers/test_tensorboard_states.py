"""The tab in a real browser where something is new, missing, broken or not allowed: it says what to do."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest
from browser import Browser, find_installed, run_browser
from tensorboard_server import PROGRAM, check_quiet, open_tab, run_tensorboard

pytest.importorskip("duckdb")

from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.testing import MS, ProcessFile, write_synthetic_run, write_trace_window

pytestmark = [pytest.mark.timeout(900)]
#: Runs a command with the folder `$0` mounted read only, and shows first that it is.
READ_ONLY = """
mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && ! touch "$0/x" 2>/dev/null && exec "$@"
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with run_browser(find_installed(), PROGRAM) as started:
        yield started


def view(browser: Browser, name: str) -> str:
    browser.do("view", name=name)
    return str(browser.do("text", selector="main"))


def test_a_run_that_grows_shows_its_new_rollouts_by_itself(browser, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    with run_tensorboard(runs, tmp_path) as server:
        # TensorBoard shows the tab of a plugin that is asked for in the address, be there a run or not.
        open_tab(browser, server)
        browser.do("wait", selector='main[data-view="none"]')
        assert "--logdir" in browser.do("text", selector="main")
        write_synthetic_run(runs, rollouts=2)
        browser.do("wait", selector='main[data-view="overview"][data-done]')
        assert browser.do("options", selector="#rollout") == ["initial", "0", "1"]
        browser.do("choose", selector="#role", value="actor")
        write_synthetic_run(runs, rollouts=3)
        browser.do("wait", selector='#overview button:text-is("2")')
        assert browser.do("options", selector="#rollout") == ["initial", "0", "1", "2"]
        # What was chosen stays, and what nobody chose follows.
        assert browser.do("value", selector="#role") == "actor"
        assert browser.do("value", selector="#rollout") == "2"
        browser.do("press", selector="main", key="2")
        browser.do("wait", selector='main[data-view="ranks"][data-done]')
        browser.do("choose", selector="#rank-sort", value="longest train_step")
        browser.do("press", selector="main", key="[")
        browser.do("wait", selector='main[data-view="ranks"][data-done]')
        write_synthetic_run(runs, rollouts=4)
        browser.do("wait", selector='#rollout option[value="3"]', attached=True)
        assert browser.do("value", selector="#rollout") == "1"
        assert browser.do("value", selector="#rank-sort") == "longest train_step"
        write_synthetic_run(runs, rollouts=1, attempt=1, start_ns=9_000_000 * MS)
        browser.do("wait", selector='#attempt option[value="1"]', attached=True)
        shutil.rmtree(runs / "synthetic")
        browser.do("wait", selector='main[data-view="none"]')
        check_quiet(browser, server)


def test_names_from_traces_are_text(browser, tmp_path):
    name = "<img src=x onerror=alert(1)>"
    made = write_synthetic_run(tmp_path / "runs", run_id=name)
    for process in made.processes:
        process.process.host = (
            f"{name}\u202ehost"  # turns round what stands behind it, unless it is spelled out
        )
        process.phase(name, 5_000_000 * MS, 5_000_001 * MS, rollout=1, source=name, sync=2)
        process.write(tmp_path / "runs")
    with run_tensorboard(tmp_path / "runs", tmp_path) as server:
        open_tab(browser, server)
        assert name in browser.do("options", selector="#run")[0]
        for which in ("overview", "ranks", "sync", "health"):
            browser.do("view", name=which)
            assert browser.do("count", selector="img") == 0
        text = browser.do("text", selector="main")
        assert rf"{name}\u202ehost" in text
        assert "\u202e" not in text
        check_quiet(browser, server)


def test_a_missing_rank_and_a_truncated_file_are_named(browser, tmp_path):
    made = write_synthetic_run(tmp_path / "runs", trainers=3)
    made.trainers[1].write(tmp_path / "runs").unlink()
    whole = made.engines[0].write(tmp_path / "runs")
    whole.write_bytes(whole.read_bytes()[:-200])
    window = write_trace_window(
        tmp_path / "runs",
        made.trainers[0],
        [1],
        [
            {
                "ph": "X",
                "cat": "kernel",
                "name": f"k{n}",
                "pid": 0,
                "tid": 7,
                "ts_ns": 5_001_400 * MS + n,
                "dur_ns": 1,
            }
            for n in range(2000)
        ],
    )
    window.write_bytes(window.read_bytes()[:-800])
    with run_tensorboard(tmp_path / "runs", tmp_path) as server:
        open_tab(browser, server)
        text = view(browser, "health")
        assert "actor: 2 of 3 ranks seen; missing rank 1" in text
        assert "copy all of them together" in text
        assert f"{whole.name}" in text
        assert "Damaged or refused" in text
        # What is there is shown.
        browser.do("view", name="overview")
        assert browser.do("count", selector="#overview tbody tr") == 3
        browser.do("view", name="ranks")
        browser.do("view", name="timeline")
        (found,) = browser.do("query", sql="select count(*) as n from slice where name glob 'k*'")
        assert 0 < found["n"] < 2000
        assert browser.do("count", selector="#no-traces") == 0
        browser.do("click", selector="#problems summary")
        told = browser.do("text", selector="#problems")
        assert window.name in told
        assert "actor: 2 of 3 ranks seen" in told
        check_quiet(browser, server)


def test_without_traces_the_timeline_shows_phases_and_says_so(browser, tmp_path):
    write_synthetic_run(tmp_path / "runs")
    with run_tensorboard(tmp_path / "runs", tmp_path) as server:
        open_tab(browser, server, view="timeline")
        browser.do("wait", selector="#no-traces")
        assert "profiler in the configuration" in browser.do("text", selector="#no-traces")
        (found,) = browser.do("query", sql="select count(*) as n from slice where name = 'train_step'")
        assert found["n"] == 4
        check_quiet(browser, server)


def test_a_run_without_rollouts_or_records_says_what_is_awaited(browser, tmp_path):
    runs = tmp_path / "runs"
    alone = ProcessFile("started", pid=7, role="driver", start_ns=5 * MS)
    alone.clock(6 * MS)
    alone.write(runs)
    empty = write_synthetic_run(runs, run_id="empty", start_ns=1)
    shutil.rmtree(RunPaths.at(empty.folder).records)
    with run_tensorboard(runs, tmp_path) as server:
        for run, title, advice in (
            ("started", "No rollout yet", "appear here by themselves"),
            ("empty", "No records yet", "slime-profiler doctor"),
        ):
            open_tab(browser, server, run=run)
            for number in range(1, 5):
                browser.do("press", selector="main", key=str(number))
                browser.do("wait", selector=".notice")
                text = browser.do("text", selector="main")
                assert title in text
                assert advice in text
            text = view(browser, "health")
            assert ("driver" in text) == (run == "started")
            check_quiet(browser, server)


def test_a_read_only_log_folder_is_read_and_left_as_it_is(browser, tmp_path):
    allowed = (
        shutil.which("unshare") and subprocess.run(["unshare", "-rm", "true"], check=False).returncode == 0
    )
    if not allowed:
        pytest.skip("this user may not mount anything (unshare -rm)")
    runs = tmp_path / "runs"
    write_synthetic_run(runs)
    before = {(path, path.stat().st_mtime_ns) for path in runs.rglob("*")}
    words = ["unshare", "-rm", "sh", "-c", READ_ONLY, str(runs)]
    with run_tensorboard(runs, tmp_path, words) as server:
        open_tab(browser, server)
        for which in ("overview", "ranks", "sync", "health", "timeline"):
            browser.do("view", name=which)
        (found,) = browser.do("query", sql="select count(*) as n from slice where name = 'train_step'")
        assert found["n"] == 4
        check_quiet(browser, server)
    assert {(path, path.stat().st_mtime_ns) for path in runs.rglob("*")} == before


def test_it_follows_tensorboards_runs_and_the_filter_over_them(browser, tmp_path):
    writer = pytest.importorskip("tensorboard.summary.writer.event_file_writer", exc_type=ImportError)
    runs = tmp_path / "runs"
    for number, name in enumerate(("first", "second", "third")):
        write_synthetic_run(runs, run_id=name, start_ns=(5_000_000 + number) * MS)
    for name in ("first", "second"):
        writer.EventFileWriter(str(runs / name / "scalars")).close()
    with run_tensorboard(runs, tmp_path) as server:
        open_tab(browser, server)
        browser.do("wait", selector='#run optgroup[label="Selected in TensorBoard"]', attached=True)
        # The newest that TensorBoard lists; ours besides.
        browser.do("wait", selector='main[data-view="overview"][data-done]')
        assert browser.do("options", selector="#run") == ["first", "second", "third"]
        assert browser.do("value", selector="#run") == "second"
        open_tab(browser, server, search="&runFilter=fir.t")
        browser.do("wait", selector='#run optgroup[label="Selected in TensorBoard"]', attached=True)
        browser.do("wait", selector='main[data-view="overview"][data-done]')
        assert browser.do("value", selector="#run") == "first"
        browser.do("choose", selector="#run", value="third")
        browser.do("wait", selector='main[data-view="overview"][data-done]')
        assert browser.do("value", selector="#run") == "third"
        check_quiet(browser, server)
