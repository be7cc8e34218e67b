"""What one span costs the thread that records it, off and on, beside its peers.

One process, all cases interleaved, medians of thread CPU time; the garbage collector stays on,
since what a span leaves behind for it is part of its price. Run as
``python benchmarks/span.py [repeats]``. The exit status is 1 only when a span was dropped.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _records import count_phases, writer_cpu_ns

from slime_profiler_plugin import timeline

SPANS_ON = 140_000
WARM_UP = 10
Case = Callable[[int], None]


def main() -> int:
    """Measure and print; see the module's text for the exit status."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    off = measure({"nullcontext, shared": shared_nullcontext, **timeline_cases()}, repeats, 20_000)
    print("off", f"{'ns':>33}{'x nullcontext':>16}")
    base = off["nullcontext, shared"]
    for name, ns in off.items():
        print(f"  {name:26}{ns:8.0f}{ns / base:16.2f}")
    print("  aims: phase <= 1.2, with two fields <= 1.5\n")
    with tempfile.TemporaryDirectory() as folder:
        return measure_on(Path(folder), repeats)


def measure_on(folder: Path, repeats: int) -> int:
    """Record with no profiler active, peers between; then `SPANS_ON` spans at one go."""
    assert timeline.start({"out": str(folder)}, run_id="benchmark", role="actor", rank=0)
    peers, missing = peer_cases()
    ours = timeline_cases()
    on = measure({**ours, **peers}, repeats, 2_000)
    timeline.flush()
    before = writer_cpu_ns()
    ours["phase"](SPANS_ON)
    timeline.flush()
    writer_ns = writer_cpu_ns() - before
    timeline.stop()
    base = on.get("torch record_function")
    print(f"on, no profiler active {'ns':>14}{'of record_function':>21}")
    for name, ns in on.items():
        print(f"  {name:26}{ns:8.0f}" + (f"{'1/' + format(base / ns, '.1f'):>21}" if base else ""))
    for line in missing:
        print(f"  {line}")
    print("  aim: phase at most 1/5 (better 1/8)\n")
    print(f"{SPANS_ON} spans at one go")
    print(f"  writer thread: {writer_ns / SPANS_ON:.0f} ns CPU per span")
    expected = SPANS_ON + (2_000 * repeats + WARM_UP) * len(ours)
    phases, dropped, _ = count_phases(folder)
    recorded = phases["optimizer"]
    print(f"  all {expected} spans: {recorded} in the file, {dropped} dropped")
    return 0 if recorded == expected and dropped == 0 else 1


def measure(cases: dict[str, Case], repeats: int, spans: int) -> dict[str, float]:
    """Median ns of thread CPU per span, an empty loop taken off."""
    results: dict[str, list[float]] = {name: [] for name in cases}
    for case in cases.values():
        case(WARM_UP)
    for _ in range(repeats):
        for name, case in cases.items():
            start = time.thread_time_ns()
            case(spans)
            middle = time.thread_time_ns()
            empty(spans)
            results[name].append((middle - start - (time.thread_time_ns() - middle)) / spans)
    return {name: statistics.median(values) for name, values in results.items()}


def empty(n: int) -> None:
    """The loop alone."""
    for _ in range(n):
        pass


def shared_nullcontext(n: int) -> None:
    """What an empty ``with`` costs."""
    context = contextlib.nullcontext()
    for _ in range(n):
        with context:
            pass


def timeline_cases() -> dict[str, Case]:
    """Ours, in the state the switch has when they run."""

    def phase(n: int) -> None:
        for _ in range(n):
            with timeline.phase("optimizer"):
                pass

    def phase_with_fields(n: int) -> None:
        for _ in range(n):
            with timeline.phase("optimizer", step=1, bytes=2):
                pass

    return {"phase": phase, "phase, two fields": phase_with_fields}


def peer_cases() -> tuple[dict[str, Case], list[str]]:
    """The peers that are installed, and a line for each that is not."""
    cases: dict[str, Case] = {}
    missing: list[str] = []
    for name, make in (
        ("torch record_function", record_function_case),
        ("nvtx.annotate", nvtx_case),
        ("VizTracer log_event", viztracer_case),
        ("OpenTelemetry span", opentelemetry_case),
    ):
        with contextlib.suppress(ImportError):
            cases[name] = make()
            continue
        missing.append(f"{name}: skipped, not installed")
    return cases, missing


def loop(make: Callable[[], Any]) -> Case:
    """``with make(): pass``, often."""

    def case(n: int) -> None:
        for _ in range(n):
            with make():
                pass

    return case


def record_function_case() -> Case:
    """A bare one, as it stands in code that is not being profiled."""
    from torch.profiler import record_function

    return loop(functools.partial(record_function, "optimizer"))


def nvtx_case() -> Case:
    """The package's own context manager; without a tool attached it does nothing."""
    import nvtx

    return loop(functools.partial(nvtx.annotate, "optimizer", domain="benchmark"))


def viztracer_case() -> Case:
    """While it traces, logging events only."""
    from viztracer import VizTracer

    tracer = VizTracer(
        verbose=0, max_stack_depth=0, ignore_c_function=True, tracer_entries=200_000, log_sparse=True
    )
    inner = loop(functools.partial(tracer.log_event, "optimizer"))

    def case(n: int) -> None:
        tracer.start()
        inner(n)
        tracer.stop()
        tracer.clear()

    return case


def opentelemetry_case() -> Case:
    """The SDK's simple processor with its exporter in memory."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("benchmark")
    inner = loop(functools.partial(tracer.start_as_current_span, "optimizer"))

    def case(n: int) -> None:
        inner(n)
        exporter.clear()

    return case


if __name__ == "__main__":
    sys.exit(main())
