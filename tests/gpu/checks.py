"""What only a GPU can show about device brackets. Each check returns what it saw, or fails.

The checks synchronise where they need a known state; the brackets under test never do.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kineto_file import Event, kernels_of, names_in, read_events, synchronizing_calls
from workbench import Brackets, Losses, drift_ppm, judge_enclosure, paired_overhead

from slime_profiler_plugin import timeline
from slime_profiler_plugin.clock import read_pair

#: CUPTI brings its timestamps to the host's clock by a fit of its own, whose error it does
#: not state; seen up to some microseconds.
KINETO_NS = 20_000
DRIFT_S = 120


class Skip(Exception):  # noqa: N818 - a result, not an error
    """The check has nothing to show on this machine; says why."""


def why_no_gpu() -> str | None:
    """Why the checks cannot run here, or ``None`` where they can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} is built without CUDA or ROCm"
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    return None


def _torch() -> Any:
    import torch

    torch.cuda.init()
    torch.ones(1, device="cuda").add_(1)
    torch.cuda.synchronize()
    return torch


def _export(profile: Any) -> list[Event]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        return read_events(path)


def _profiler(torch: Any) -> Any:
    kinds = torch.profiler.ProfilerActivity
    return torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA])


def brackets_enclose_their_kernels() -> str:
    """On three streams, each with a backlog, and on the default one."""
    torch = _torch()
    streams = [torch.cuda.current_stream(), *(torch.cuda.Stream() for _ in range(3))]
    matrices = [torch.randn(1024, 1024, device="cuda") for _ in streams]
    torch.cuda.synchronize()
    bench = Brackets()
    count = 200

    def work(number: int) -> None:
        matrix = matrices[number % len(streams)]
        with torch.profiler.record_function(f"check_{number}"):
            for _ in range(1 + number % 5):
                torch.mm(matrix, matrix)

    bench.anchor()
    with _profiler(torch) as profile:
        before = read_pair(50)
        for number in range(count):
            with torch.cuda.stream(streams[number % len(streams)]):
                assert bench.phase(number, lambda number=number: work(number))
            if number % 20 == 0:
                time.sleep(0.02)
        torch.cuda.synchronize()
        after = read_pair(50)
    bench.anchor()
    events = _export(profile)
    to_mono_ns = before.mono_ns - before.unix_ns
    slewed_ns = abs((after.mono_ns - after.unix_ns) - to_mono_ns)
    pairs = []
    for number in range(count):
        kernels = kernels_of(events, f"check_{number}")
        assert len(kernels) >= 1 + number % 5, f"phase {number} launched {len(kernels)} kernels"
        begin = min(kernel.begin_ns for kernel in kernels) + to_mono_ns
        end = max(kernel.end_ns for kernel in kernels) + to_mono_ns
        pairs.append((bench.by_id[number], begin, end))
    result = judge_enclosure(pairs)
    wider = statistics.median(line.dur_ns - (end - begin) for line, begin, end in pairs)
    unsure = statistics.median(line.uncertainty_ns for line, _, _ in pairs)
    text = f"{result}; median uncertainty {unsure / 1000:.1f} us, wider than kernels by {wider / 1000:.1f} us"
    assert result.worst_ns <= KINETO_NS + slewed_ns, text
    assert bench.losses == Losses(), bench.losses
    assert len({line.stream for line, _, _ in pairs}) == len(streams)
    return text


def pending_brackets_survive_a_capture() -> str:
    """1,500 of them, unreached, while the main thread captures and another thread makes more."""
    torch = _torch()
    value = torch.zeros(1024, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        value.add_(0)
    torch.cuda.synchronize()
    bench = Brackets()
    bench.anchor()
    # Several streams, since a stream's queue to the device is not endless.
    busy = [torch.cuda.Stream() for _ in range(4)]
    for stream in busy:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(int(8e9))  # some seconds of work
    for number in range(1_500):
        with torch.cuda.stream(busy[number % len(busy)]):
            assert bench.phase(number, lambda: None)
    still_busy = not any(stream.query() for stream in busy)
    pending = bench.brackets.pending
    assert pending >= 2_000, pending
    made_beside = []

    def beside() -> None:
        torch.cuda.set_device(0)
        with torch.cuda.stream(torch.cuda.Stream()):
            for number in range(2_000, 2_200):
                made_beside.append(bench.phase(number, lambda: None))
                time.sleep(0.01)  # two seconds: anchors fall into the capture

    graph = torch.cuda.CUDAGraph()
    thread = threading.Thread(target=beside)
    with torch.cuda.stream(side):
        graph.capture_begin()
        thread.start()
        for number in range(3_000, 3_100):
            assert not bench.phase(number, lambda: value.add_(1))
        thread.join()
        graph.capture_end()
    skipped = bench.losses.drops["a graph was being captured"]
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    bench.anchor()
    assert float(value[0]) == 300.0, f"the graph computed {float(value[0])}, not 300"
    assert skipped == 100, bench.losses
    assert not bench.losses.failures, bench.losses
    missing = set(range(1_500)) - bench.by_id.keys()
    assert not missing, f"{len(missing)} brackets never came"
    assert sum(made_beside) > 100, "the other thread got too few brackets"
    return (
        f"{pending} marks pending (device busy at capture: {still_busy}), {skipped} phases skipped inside, "
        f"{sum(made_beside)} brackets made beside it, graph replayed right"
    )


def drift_is_followed() -> str:
    """120 s, one bracket a second on an idle device, each against the host's own two reads."""
    torch = _torch()
    bench = Brackets()
    tiny = torch.zeros(1, device="cuda")
    truth: dict[int, tuple[int, int]] = {}
    first = torch.cuda.Event(enable_timing=True)
    first.record()
    first.synchronize()
    points: list[tuple[int, int]] = []
    end_ns = time.monotonic_ns() + DRIFT_S * 1_000_000_000
    for number in itertools.count():
        if time.monotonic_ns() > end_ns:
            break
        torch.cuda.synchronize()
        before = time.monotonic_ns()
        bench.phase(number, lambda: tiny.add_(1))
        torch.cuda.synchronize()
        truth[number] = (before, time.monotonic_ns())
        now = torch.cuda.Event(enable_timing=True)
        mark = time.monotonic_ns()
        now.record()
        now.synchronize()
        points.append(((mark + time.monotonic_ns()) // 2, int(first.elapsed_time(now) * 1e6)))
        # A little less than the anchors' period, and a phase between: the brackets that are
        # checked lie everywhere between two anchors, not always beside one.
        time.sleep(0.35)
        bench.phase(DRIFT_S * 10 + number, lambda: None)
        time.sleep(0.6)
    bench.anchor()
    excess = []
    for number, (before, after) in truth.items():
        line = bench.by_id[number]
        excess.append(before - (line.start_ns + line.uncertainty_ns))
        excess.append(line.start_ns + line.dur_ns - line.uncertainty_ns - after)
    unsure = [bench.by_id[number].uncertainty_ns for number in truth]
    text = (
        f"{len(truth)} brackets, device drifts {drift_ppm(points):+.2f} ppm, uncertainty median "
        f"{statistics.median(unsure) / 1000:.1f} us, most {max(unsure) / 1000:.1f} us, "
        f"worst excess {max(excess) / 1000:.1f} us"
    )
    assert max(excess) <= 0, text
    return text


@contextmanager
def _recording() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as out:
        _start(out)
        try:
            yield Path(out)
        finally:
            timeline.stop()


def _start(out: str) -> None:
    started = timeline.start({"out": out}, role="actor", rank=0, world_size=1, run_id="gpu-check")
    assert started, "recording did not start: unset SLIME_PROFILER"


def _record_lines(out: Path) -> list[dict[str, Any]]:
    (file,) = out.glob("*/records/*/*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def phases_have_twins_on_the_device() -> str:
    """Kineto projects our phases to the device: `gpu_user_annotation` of the same name."""
    torch = _torch()
    matrix = torch.randn(512, 512, device="cuda")
    names = ["forward_backward", "optimizer", "log_probs"]
    with _recording() as out:
        with _profiler(torch) as profile:
            for name in names:
                with timeline.phase(name):
                    torch.mm(matrix, matrix)
            torch.cuda.synchronize()
        events = _export(profile)
        time.sleep(1.1)
        with timeline.phase("train_wait"):
            pass
        timeline.stop()
        lines = _record_lines(out)
    assert set(names) <= names_in(events, "user_annotation")
    twins = names_in(events, "gpu_user_annotation")
    assert set(names) <= twins, twins
    phases = {line["id"]: line["name"] for line in lines if line["kind"] == "phase"}
    bracketed = {phases[line["id"]] for line in lines if line["kind"] == "device"}
    assert set(names) <= bracketed, f"in the record file: {bracketed}"
    return f"{len(names)} phases, each with a twin and a device_event_bracket line"


def the_pool_never_leaks() -> str:
    """20,000 brackets at full speed; then every event is free, an anchor, or pending."""
    torch = _torch()
    bench = Brackets()
    tiny = torch.zeros(1, device="cuda")
    made = []
    for chunk in range(4):
        for number in range(5_000):
            bench.phase(5_000 * chunk + number, lambda: tiny.add_(1))
        torch.cuda.synchronize()
        bench.anchor()
        made.append(bench.pool()[0])
    leaked = bench.pool()[1]
    assert leaked == 0, f"{leaked} events are gone"
    assert not bench.losses.failures, bench.losses
    came = sum(number >= 0 for number in bench.by_id)
    assert came + sum(bench.losses.drops.values()) == 20_000, (came, bench.losses)
    return f"events made after each 5,000 brackets: {made}; {came} brackets, {dict(bench.losses.drops)}"


def nothing_synchronizes() -> str:
    """The same work with and without brackets: the same calls that wait for the device."""
    torch = _torch()
    matrix = torch.randn(256, 256, device="cuda")
    bench = Brackets()

    def calls(phase: Callable[[int, Callable[[], object]], object]) -> dict[str, int]:
        with _profiler(torch) as profile:
            for number in range(300):
                phase(number, lambda: torch.mm(matrix, matrix))
                time.sleep(0.01)  # three seconds: anchors included
        return synchronizing_calls(_export(profile))

    without = calls(lambda _number, work: work())
    with_brackets = calls(bench.phase)
    assert len(bench.by_id) > 100, "too few brackets for this to show anything"
    assert with_brackets == without, f"without: {without}, with: {with_brackets}"
    return f"{without or 'none'} both times, {len(bench.by_id)} brackets"


_OTHER_DEVICE = """
import sys, threading
sys.path[:0] = sys.argv[1:]
import torch
from workbench import Brackets
torch.cuda.set_device(1)
tiny = torch.zeros(1, device="cuda")
bench = Brackets()
made = [bench.phase(0, lambda: tiny.add_(1))]
thread = threading.Thread(target=lambda: made.append(bench.phase(1, lambda: None)))
thread.start(); thread.join()
bench.anchor()
assert made == [True, False], made  # a new thread stands on device 0, which is not ours
assert not torch._C._cuda_hasPrimaryContext(0), "a context was opened on device 0"
assert not bench.losses.failures, bench.losses
"""


def no_context_on_another_device() -> str:
    """A process on GPU 1 whose fresh threads stand on GPU 0."""
    torch = _torch()
    if torch.cuda.device_count() < 2:
        raise Skip("needs two GPUs, and there is one")
    here = Path(__file__).resolve()
    paths = [str(here.parent), str(here.parents[2])]
    subprocess.run([sys.executable, "-c", _OTHER_DEVICE, *paths], check=True, timeout=120)
    return "GPU 0 stayed untouched"


def overhead_is_small() -> str:
    """A small training loop, blocks of steps with recording on and off by turns."""
    torch = _torch()
    model = torch.nn.Sequential(
        *(m for _ in range(4) for m in (torch.nn.Linear(2048, 2048), torch.nn.GELU()))
    ).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    batch = torch.randn(2048, 2048, device="cuda")

    def step(number: int) -> None:
        with timeline.phase("train_step", step=number):
            with timeline.phase("forward_backward"):
                with timeline.phase("forward"):
                    loss = model(batch).square().mean()
                with timeline.phase("backward"):
                    loss.backward()
            with timeline.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()

    def block() -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for number in range(25):
            step(number)
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    for _ in range(3):
        block()
    pairs = []
    with tempfile.TemporaryDirectory() as out:
        for pair in range(24):
            times = {}
            for recorded in (True, False) if pair % 2 else (False, True):
                if recorded:
                    _start(out)
                block()  # the first phases make events and an anchor
                times[recorded] = block()
                timeline.stop()
            pairs.append((times[False], times[True]))
    median, low, high = paired_overhead(pairs)
    each_ms = statistics.median(off for off, _ in pairs) / 25 * 1000
    text = (
        f"{median:+.2%} (quartiles {low:+.2%} to {high:+.2%}; aim 0.5 %) of a step of {each_ms:.2f} ms "
        f"with 5 phases"
    )
    assert median <= 0.05, text
    return text


CHECKS: tuple[Callable[[], str], ...] = (
    brackets_enclose_their_kernels,
    pending_brackets_survive_a_capture,
    phases_have_twins_on_the_device,
    the_pool_never_leaks,
    nothing_synchronizes,
    no_context_on_another_device,
    overhead_is_small,
    drift_is_followed,
)
