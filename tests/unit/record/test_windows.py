"""torch.profiler windows in one process: schedule, contents, losses."""

from __future__ import annotations

import gc
import gzip
import json
import logging
import resource
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from slime_profiler_plugin.config import Config, Profiler, Schedule, Stride, load_config  # noqa: E402  # after the skip
from slime_profiler_plugin.layout import RunPaths  # noqa: E402
from slime_profiler_plugin.record import _windows  # noqa: E402
from slime_profiler_plugin.record._windows import ProfilerWindows, selects_process  # noqa: E402
from slime_profiler_plugin.schema import Process  # noqa: E402


def identity(**changes: Any) -> Process:
    values: dict[str, Any] = {
        "run_id": "run-7",
        "attempt": 2,
        "host": "node1",
        "pid": 4321,
        "incarnation": "4321-1000",
        "start_ns": 1,
        "start_unix_ns": 1000,
        "clock_domain": "boot/time:[1]",
        "role": "actor",
        "rank": 3,
        "ranks": {"tp": 1, "dp": 0},
        "world_size": 4,
    }
    return Process(**(values | changes))


class Context:
    """What the recorder would hand over; keeps what was dropped, and the phases that ran."""

    def __init__(self, folder: Path, profiler: Profiler) -> None:
        self.identity = identity()
        self.paths = RunPaths(folder, "run-7")
        self.config = Config(profiler=profiler)
        self.dropped: list[tuple[str, str]] = []
        self.phases: list[tuple[str, dict[str, Any]]] = []

    def drop(self, what: str, reason: str, count: int = 1) -> None:
        self.dropped += [(what, reason)] * count

    @contextmanager
    def phase(self, name: str, **fields: Any) -> Iterator[None]:
        self.phases.append((name, fields))
        yield


Make = Callable[..., tuple[ProfilerWindows, Context]]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[ProfilerWindows] = []

    def windows(schedule: Schedule | None = None, **settings: Any) -> tuple[ProfilerWindows, Context]:
        settings = {"activities": ("cpu",), "ranks": "all"} | settings
        context = Context(tmp_path, Profiler(schedule=schedule or Schedule(), **settings))
        made.append(ProfilerWindows(context, context.phase))
        return made[-1], context

    yield windows
    for each in made:
        each.close()


def train(mark: str = "train_step") -> None:
    with torch.profiler.record_function(mark):
        torch.ones(8).mul(2).sum().item()


def traces(context: Context) -> dict[str, dict[str, Any]]:
    """Every file in the run's trace folder; the compressed ones decoded."""
    found = {}
    for path in sorted(context.paths.traces.rglob("*")):
        if path.is_file():
            name = f"{path.parent.name}/{path.name.partition('.')[0]}"
            assert path.name.endswith(".pt.trace.json.gz"), path
            assert name not in found
            found[name] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def names(trace: dict[str, Any], category: str) -> list[str]:
    return [e["name"] for e in trace["traceEvents"] if e.get("cat") == category]


def run_rollouts(windows: ProfilerWindows, rollouts: range) -> None:
    for rollout in rollouts:
        windows.on_rollout(rollout)
        train(f"train_{rollout}")
        windows.export()


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Schedule(), {0: [0]}),
        (Schedule(warmup=1), {1: [1]}),
        (Schedule(skip_first=2, wait=1, warmup=1), {4: [4]}),
        (Schedule(wait=1, warmup=1, active=1, repeat=2), {2: [2], 5: [5]}),
        (Schedule(wait=1, active=2, repeat=2), {1: [1, 2], 4: [4, 5]}),
        (Schedule(active=2, repeat=0), {0: [0, 1], 2: [2, 3], 4: [4, 5], 6: [6, 7]}),
        (Schedule(active=1, repeat=3), {0: [0], 1: [1], 2: [2]}),
        (Schedule(skip_first=20), {}),
    ],
)
@pytest.mark.parametrize("at_the_wait", [True, False])
def test_the_schedule_counts_rollouts(
    schedule: Schedule, expected: dict[int, list[int]], at_the_wait: bool, make: Make
) -> None:
    windows, context = make(schedule)
    for rollout in range(8):
        windows.on_rollout(rollout)
        windows.on_rollout(rollout)  # the same again is no step
        train(f"train_{rollout}")
        if at_the_wait:
            windows.export()
    windows.close()
    found = traces(context)
    assert {name: t["slime_profiler_rollouts"] for name, t in found.items()} == {
        f"rollout_{first:06d}/actor-3": rollouts for first, rollouts in expected.items()
    }
    for first, rollouts in expected.items():
        annotations = names(found[f"rollout_{first:06d}/actor-3"], "user_annotation")
        steps = [f"ProfilerStep#{r}" for r in rollouts]
        assert sorted(annotations) == sorted(steps + [f"train_{r}" for r in rollouts])
    assert context.phases == [("profiler_export", {})] * len(expected)
    assert context.dropped == []


@pytest.mark.parametrize("rollout", [None, "initial"])
def test_what_is_no_rollout_number_is_no_step(rollout: str | None, make: Make) -> None:
    windows, context = make(Schedule(warmup=1))
    for each in (rollout, 10, rollout, 11, rollout):
        windows.on_rollout(each)
        train()
    windows.close()
    assert list(traces(context)) == ["rollout_000011/actor-3"]


def test_who_wrote_it_is_inside(make: Make) -> None:
    windows, context = make()
    run_rollouts(windows, range(5, 6))
    windows.close()
    (trace,) = traces(context).values()
    about = trace["slime_profiler"]
    pairs = about.pop("clock_pairs")
    assert about == {
        "run_id": "run-7",
        "attempt": 2,
        "host": "node1",
        "pid": 4321,
        "incarnation": "4321-1000",
        "role": "actor",
        "rank": 3,
        "ranks": {"tp": 1, "dp": 0},
        "world_size": 4,
        "clock_domain": "boot/time:[1]",
    }
    (start, start_unix, _), (stop, stop_unix, _) = pairs
    window = trace["slime_profiler_window"]
    assert (window["start_ns"], window["stop_ns"]) == (start, stop)
    assert (window["cut"], window["activities"]) == (None, ["cpu"])
    event = next(e for e in trace["traceEvents"] if e["name"] == "train_5")
    unix_ns = trace["baseTimeNanoseconds"] + round(event["ts"] * 1000)
    assert start_unix - 1_000_000 <= unix_ns <= stop_unix + 1_000_000


def test_flags_reach_torch(make: Make) -> None:
    windows, context = make(with_stack=True, record_shapes=True, profile_memory=True)
    run_rollouts(windows, range(1))
    windows.close()
    (trace,) = traces(context).values()
    assert (trace["with_stack"], trace["record_shapes"], trace["profile_memory"]) == (1, 1, 1)
    assert names(trace, "python_function")


def test_an_open_window_is_written_at_the_end(make: Make) -> None:
    windows, context = make(Schedule(active=3))
    windows.on_rollout(0)
    train()
    windows.on_rollout(1)
    train()
    windows.close()
    (trace,) = traces(context).values()
    assert trace["slime_profiler_rollouts"] == [0, 1]
    assert trace["slime_profiler_window"]["cut"] == "the process ended"
    windows.close()
    windows.on_rollout(2)
    assert len(traces(context)) == 1


def test_an_end_without_time_counts_the_open_window(make: Make) -> None:
    windows, context = make()
    windows.on_rollout(0)
    window = windows._window
    assert window is not None
    windows.abandon("SIGTERM")
    assert context.dropped == [("trace", "window not written: SIGTERM")]
    windows.on_rollout(1)
    windows.close()
    assert len(context.dropped) == 1
    assert traces(context) == {}
    window.close()  # what would run on until the process ends must not do so for other tests


def test_a_window_that_never_began_leaves_nothing(make: Make) -> None:
    windows, context = make(Schedule(warmup=2))
    windows.on_rollout(0)
    windows.close()
    assert traces(context) == {}
    assert not context.paths.traces.exists()
    assert context.dropped == []


def test_a_window_is_cut_when_it_grows_too_large(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_windows, "_CHECK_NS", 0)
    memory = iter([1_000_000, 1_400_000, 1_600_000, 2_000_000])
    monkeypatch.setattr(_windows, "resident_bytes", lambda: next(memory))
    windows, context = make(Schedule(active=2, repeat=2), max_bytes=1_000_000)
    windows.on_rollout(0)
    train("before")
    windows.check()  # 400 kB of memory: 800 kB of JSON
    train("between")
    windows.check()  # 600 kB: 1.2 MB
    train("after")
    windows.export()
    for rollout in (1, 2, 3):
        windows.on_rollout(rollout)
        train(f"train_{rollout}")
        windows.export()
    windows.close()
    found = traces(context)
    assert list(found) == ["rollout_000000/actor-3", "rollout_000002/actor-3"]
    cut, whole = found.values()
    assert sorted(names(cut, "user_annotation")) == ["ProfilerStep#0", "before", "between"]
    assert cut["slime_profiler_window"]["cut"].startswith("about 1.2 MB of JSON after ")
    assert cut["slime_profiler_window"]["cut"].endswith("max_bytes is 1.0 MB")
    assert whole["slime_profiler_rollouts"] == [2, 3]
    assert whole["slime_profiler_window"]["cut"] is None
    assert context.dropped == [("trace", "window cut short at max_bytes")]
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert "window cut short at max_bytes: about 1.2 MB of JSON" in warning.getMessage()


def test_the_second_window_is_cut_by_the_rate_of_the_first(make: Make) -> None:
    windows, context = make(Schedule(active=1, repeat=2))
    run_rollouts(windows, range(1))
    windows.on_rollout(1)
    windows._settings = Profiler(max_bytes=1)  # anything is too large now
    windows.check()
    windows.export()
    windows.close()
    first, second = (t["slime_profiler_window"]["cut"] for t in traces(context).values())
    assert first is None
    assert "MB of JSON after" in second


def test_a_check_on_another_thread_does_nothing(make: Make) -> None:
    windows, context = make(max_bytes=1)
    windows.on_rollout(0)
    windows._bytes_per_s = 1e12  # whatever it says, that thread cannot stop the window
    elsewhere(windows.check)
    train()
    windows.export()
    windows.close()
    assert [t["slime_profiler_window"]["cut"] for t in traces(context).values()] == [None]


def fail_export(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    """torch's export raises, or, as it does on a full disk, writes a part and says nothing."""

    def export(_: object, path: str) -> None:
        Path(path).write_text('{"traceEvents": [{"name": "half')
        if error is not None:
            raise error

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", export)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(28, "No space left on device"), "window not written: No space left on device"),
        (RuntimeError("Trace is already saved."), "window not written: Trace is already saved."),
        (None, "window not written: the file is not whole: is the disk full?"),
    ],
)
def test_a_failed_export_is_counted_and_leaves_no_file(
    error: Exception | None,
    reason: str,
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    windows, context = make(Schedule(repeat=0))
    with monkeypatch.context() as broken:
        fail_export(broken, error)
        run_rollouts(windows, range(2))
        assert [p for p in context.paths.traces.rglob("*") if p.is_file()] == []
    run_rollouts(windows, range(2, 3))
    windows.close()
    assert list(traces(context)) == ["rollout_000002/actor-3"]
    assert context.dropped == [("trace", reason)] * 2
    assert [r.levelno for r in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize("taken", ["", ".gz", ".tmp"])
def test_a_file_of_another_process_is_left_alone(
    make: Make, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    """Two hosts, no ranks, and windows that start in the same nanosecond."""
    windows, context = make()
    context.identity.rank = None
    window = _windows.Window
    stop = window.stop
    theirs: list[Path] = []

    def stop_second(self: Any, cut: str | None = None) -> None:
        stop(self, cut)
        if theirs:  # stopped before
            return
        path = context.paths.trace_file(0, "actor", None, self.start_unix_ns).with_suffix("")
        theirs.append(path.with_name(path.name + taken))
        theirs[0].parent.mkdir(parents=True, exist_ok=True)
        theirs[0].write_bytes(b"theirs")
        theirs.append(context.paths.trace_file(0, "actor", None, self.start_unix_ns + 1))

    monkeypatch.setattr(window, "stop", stop_second)
    run_rollouts(windows, range(1))
    windows.close()
    assert theirs[0].read_bytes() == b"theirs"
    assert sorted(theirs[0].parent.iterdir()) == sorted(theirs[:2])
    assert json.loads(gzip.decompress(theirs[1].read_bytes()))["slime_profiler_rollouts"] == [0]
    assert context.dropped == []


def test_a_full_disk_leaves_no_part_of_a_file(make: Make) -> None:
    windows, context = make(Schedule(repeat=0))
    windows.on_rollout(0)
    for _ in range(500):
        train()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        windows.export()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    ((_, reason),) = context.dropped
    assert reason.endswith("is the disk full?")
    assert [p for p in context.paths.traces.rglob("*") if p.is_file()] == []
    run_rollouts(windows, range(1, 2))
    windows.close()
    assert list(traces(context)) == ["rollout_000001/actor-3"]


def test_a_folder_that_cannot_be_made(make: Make) -> None:
    windows, context = make()
    context.paths.root.parent.mkdir(parents=True, exist_ok=True)
    context.paths.root.write_text("a file where the folder should be")
    run_rollouts(windows, range(1))
    windows.close()
    assert context.dropped == [("trace", "window not written: Not a directory")]


def test_a_slow_export_is_the_last(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    windows, context = make(Schedule(repeat=0), max_export_s=0.000001)
    run_rollouts(windows, range(3))
    windows.close()
    assert list(traces(context)) == ["rollout_000000/actor-3"]
    ((what, reason),) = context.dropped
    assert what == "trace"
    assert reason.endswith("no more windows in this process")
    assert len(caplog.records) == 1


def test_another_profiler_is_left_alone(make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    windows, context = make(Schedule(active=2, repeat=0))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
        windows.on_rollout(0)
        train("theirs")
    windows.on_rollout(1)  # the rest of a lost window is lost too
    train()
    windows.on_rollout(2)
    train("ours")
    windows.on_rollout(3)
    windows.export()
    windows.close()
    theirs.export_chrome_trace(str(tmp_path / "theirs.json"))
    assert "theirs" in names(json.loads((tmp_path / "theirs.json").read_text()), "user_annotation")
    (ours,) = traces(context).values()
    assert ours["slime_profiler_rollouts"] == [2, 3]
    assert context.dropped == [
        ("trace", "window not recorded: another torch.profiler is active in this process")
    ]
    assert len(caplog.records) == 1


def test_a_profiler_begun_within_the_window_costs_us_the_window_and_nobody_the_process(make: Make) -> None:
    windows, context = make(Schedule(repeat=0))
    windows.on_rollout(0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
        train("theirs")
    assert any(e.name == "theirs" for e in theirs.events())
    windows.export()
    run_rollouts(windows, range(1, 2))
    windows.close()
    assert list(traces(context)) == ["rollout_000001/actor-3"]
    ((_, reason),) = context.dropped
    assert "another torch.profiler was started within the window" in reason


def elsewhere(function: Callable[..., None], *args: Any) -> None:
    thread = threading.Thread(target=function, args=args)
    thread.start()
    thread.join()


def test_only_its_own_thread_ends_a_window(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    windows, context = make(Schedule(repeat=0))
    windows.on_rollout(0)
    elsewhere(windows.export)
    elsewhere(windows.check)
    assert context.dropped == []
    train()
    elsewhere(windows.on_rollout, 1)
    windows.export()
    windows.close()
    assert list(traces(context)) == ["rollout_000000/actor-3"]
    assert context.dropped == [
        ("trace", "window goes on: it was begun on another thread, and only that one can end it")
    ]
    assert len(caplog.records) == 1


def test_closed_on_another_thread_is_counted(make: Make) -> None:
    windows, context = make()
    windows.on_rollout(0)
    window = windows._window
    assert window is not None
    running: Any = window._profile.profiler
    elsewhere(windows.close)
    ((_, reason),) = context.dropped
    assert reason.startswith("window not written: the window was begun on another thread")
    assert traces(context) == {}
    running.__exit__(None, None, None)  # what runs on until the process ends must not do so for other tests


def test_activities_this_machine_does_not_have(make: Make) -> None:
    windows, context = make(activities=("cpu", "hpu"))
    run_rollouts(windows, range(1))
    windows.close()
    assert [t["slime_profiler_window"]["activities"] for t in traces(context).values()] == [["cpu"]]
    windows, context = make(activities=("hpu",))
    run_rollouts(windows, range(1))
    ((_, reason),) = context.dropped
    assert reason.startswith(
        "window not recorded: none of the activities hpu can be recorded here; allowed: cpu"
    )


def test_a_windows_memory_is_given_back_without_the_garbage_collector(make: Make) -> None:
    windows, _ = make()
    windows.on_rollout(0)
    train()
    assert windows._window is not None
    events = weakref.ref(windows._window._profile.profiler)
    gc.disable()
    try:
        windows.export()
        assert events() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("profiler", "changes", "selected"),
    [
        (None, {}, False),
        (Profiler(ranks="all"), {}, True),
        (Profiler(ranks="all"), {"role": "critic"}, False),
        (Profiler(ranks="all"), {"role": None}, False),
        (Profiler(ranks="all", roles=("critic", "actor")), {"role": "critic"}, True),
        (Profiler(ranks="last"), {}, True),
        (Profiler(ranks="first"), {}, False),
        (Profiler(ranks="first"), {"rank": None}, False),
        (Profiler(ranks=Stride(stride=3)), {}, True),
        (Profiler(ranks=(0, 2)), {}, False),
    ],
)
def test_selects_process(profiler: Profiler | None, changes: dict[str, Any], selected: bool) -> None:
    assert selects_process(profiler, identity(**changes)) is selected


def test_no_windows_without_settings(make: Make) -> None:
    _, context = make()
    context.config = load_config("timeline", {})  # type: ignore[assignment]
    with pytest.raises(ValueError, match="no profiler windows"):
        ProfilerWindows(context, context.phase)
