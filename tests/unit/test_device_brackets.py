"""Device brackets on the fake device layer: right times, and every promise about not disturbing."""

from __future__ import annotations

import random

import pytest
from device_bench import MS, SECOND, Bench, Part
from hypothesis import given, settings
from hypothesis import strategies as st

from slime_profiler_plugin.record._device_layer import NO_DEVICE
from slime_profiler_plugin.record._devices import DeviceBrackets
from slime_profiler_plugin.testing import FakeDevice, FakeDeviceError, FakeStream


def test_a_bracket_encloses_its_kernel() -> None:
    bench = Bench(FakeDevice(drift=30e-6))
    bench.phase(7, bench.device.current, 3 * MS)
    assert bench.emitted == []  # no anchor encloses it yet
    bench.settle()
    line = next(line for line in bench.emitted if line.id == 7)
    assert (line.device_type, line.device_index, line.stream) == ("fake", 0, 0)
    assert line.timing == "device_event_bracket"
    assert line.dur_ns == pytest.approx(3 * MS, abs=10_000)
    bench.check(range(7, 8), 50_000)
    assert bench.part == Part()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    drift_ppm=st.floats(-100, 100),
    offset_ns=st.integers(-(10**11), 10**18),
    latency_ns=st.integers(0, 12_000),
    lag_ms=st.integers(0, 3_000),
)
def test_times_are_right_within_the_stated_uncertainty(
    seed: int, drift_ppm: float, offset_ns: int, latency_ns: int, lag_ms: int
) -> None:
    """120 s, three streams, a clock that drifts and wanders, a device that lags behind."""
    chance = random.Random(seed)
    device = FakeDevice(drift=drift_ppm * 1e-6, offset_ns=offset_ns, latency_ns=latency_ns)
    bench = Bench(device)
    streams = [FakeStream(number) for number in range(3)]
    device.launch(streams[0], lag_ms * MS)
    for number in range(240):
        drift_ppm += chance.uniform(-0.2, 0.2)
        device.set_drift(drift_ppm * 1e-6)
        bench.phase(number, chance.choice(streams), chance.randrange(400 * MS), chance.randrange(500 * MS))
    bench.settle()
    bench.check(range(240), 120_000)
    assert bench.part == Part()
    assert device.synchronized == device.broken_captures == device.reused_too_soon == 0


def test_a_long_phase_is_as_exact_as_a_short_one() -> None:
    """elapsed_time rounds to 31 us after 400 s; a mark is measured from the anchor beside it."""
    device = FakeDevice(drift=-80e-6)
    bench = Bench(device)
    for number in range(-20, 0):
        bench.phase(number, device.current, MS, SECOND // 5)
    bench.phase(1, device.current, 399 * SECOND, 400 * SECOND)
    bench.settle()
    bench.check(range(1, 2), 20_000)


def test_durations_are_exact_where_times_are_not() -> None:
    """Both marks of a short bracket share their anchors' error."""
    device = FakeDevice(latency_ns=30_000)
    bench = Bench(device)
    device.launch(device.current, 50 * MS)
    for number in range(100):
        bench.phase(number, device.current, 200_000)
    bench.settle()
    for line in bench.emitted:
        if line.id >= 0:
            assert abs(line.dur_ns - 200_000) <= 1_500


def test_the_pool_never_leaks_and_reuses() -> None:
    bench = Bench(FakeDevice())
    for number in range(5_000):
        bench.phase(number, bench.device.current, MS // 2, MS)
    made = len(bench.device.events)
    for number in range(5_000, 20_000):
        bench.phase(number, bench.device.current, MS // 2, MS)
    assert len(bench.device.events) <= made + 8
    assert made < 2_500  # marks wait for the next anchor, about a second
    bench.settle()
    assert {line.id for line in bench.emitted} >= set(range(20_000))
    assert bench.device.reused_too_soon == 0
    (state,) = bench.brackets._devices.values()
    assert state.pool.free == state.pool.made - state.pending - state.clock.held


def test_the_work_of_one_phase_is_bounded() -> None:
    bench = Bench(FakeDevice())
    bench.device.launch(bench.device.current, 5 * SECOND)
    for number in range(3_000):
        bench.phase(number, bench.device.current, 1_000)
    bench.device.pass_ns(10 * SECOND)
    for number in range(3_000, 3_500):
        before = bench.device.queries
        bench.phase(number, bench.device.current, 1_000)
        # 17 for an anchor and 2 to measure it, then per mark one to ask and two measurements
        assert bench.device.queries - before <= 19 + 8 * 5


def test_1500_pending_while_a_graph_is_captured() -> None:
    device = FakeDevice()
    bench = Bench(device)
    device.launch(device.current, 3 * SECOND)
    for number in range(1_500):
        bench.phase(number, device.current, 1_000)
    assert bench.brackets.pending == 3_000
    graph = FakeStream(5)
    with device.capture(graph):
        for number in range(1_500, 1_600):
            bench.phase(number, graph, 1_000)
    assert bench.part.drops == {"a graph was being captured": 100}
    bench.settle()
    assert {line.id for line in bench.emitted if line.id >= 0} == set(range(1_500))
    bench.check(range(1_500), 60_000)
    assert device.broken_captures == 0
    assert not any(event.captured for event in device.events)


def test_another_threads_capture_is_not_broken() -> None:
    """This thread's stream is not captured, so brackets go on, and their queries are relaxed."""
    device = FakeDevice()
    bench = Bench(device)
    with device.capture(FakeStream(5)):
        for number in range(50):
            bench.phase(number, device.current, MS, SECOND // 10)
    assert device.broken_captures == 0
    assert len(bench.emitted) > 20


def test_no_anchor_goes_into_a_capture_of_its_own_stream() -> None:
    """torch has few streams, and gives them out again."""
    device = FakeDevice()
    bench = Bench(device)
    bench.phase(0, device.current, MS)
    with device.capture(device.streams_made[0]):
        for number in range(1, 30):
            bench.phase(number, device.current, MS, SECOND // 5)
    assert not any(event.captured for event in device.events)
    bench.settle()
    bench.check(range(30), 60_000)


def test_a_phase_that_ends_inside_a_capture_has_no_bracket() -> None:
    device = FakeDevice()
    bench = Bench(device)
    handle = bench.brackets.start()
    with device.capture(device.current):
        bench.brackets.finish(handle, 1)
    bench.settle()
    assert bench.part.drops == {"a graph was being captured": 1}
    assert all(line.id < 0 for line in bench.emitted)
    assert not any(event.captured for event in device.events)


def test_a_phase_around_a_capture_has_a_bracket() -> None:
    device = FakeDevice()
    bench = Bench(device)
    handle = bench.brackets.start()
    graph = FakeStream(5)
    with device.on(graph), device.capture(graph):
        device.pass_ns(MS)
    bench.brackets.finish(handle, 1)
    bench.settle()
    assert 1 in {line.id for line in bench.emitted}


def test_a_changed_stream_has_no_bracket() -> None:
    device = FakeDevice()
    bench = Bench(device)
    handle = bench.brackets.start()
    with device.on(FakeStream(8)):
        bench.brackets.finish(handle, 1)
    bench.settle()
    assert bench.part.drops == {"the current stream changed within the phase": 1}
    assert 1 not in {line.id for line in bench.emitted}


def test_past_the_cap_new_brackets_are_dropped_and_the_old_ones_come() -> None:
    device = FakeDevice()
    bench = Bench(device, cap=200)
    device.launch(device.current, 5 * SECOND)
    for number in range(150):
        bench.phase(number, device.current, 1_000)
    dropped = bench.part.drops["too many brackets on their way"]
    assert dropped >= 50
    bench.settle()
    kept = {line.id for line in bench.emitted if line.id >= 0}
    assert kept == set(range(150 - dropped))
    bench.phase(1_000, device.current, MS)
    bench.settle()
    assert 1_000 in {line.id for line in bench.emitted}


def test_events_that_run_short_do_not_wait_for_the_second() -> None:
    """500 brackets fit; in a second there are some 10,000, and each comes."""
    bench = Bench(FakeDevice(), cap=1_000)
    for number in range(30_000):
        bench.phase(number, bench.device.current, 1_000, 90_000)
    bench.settle()
    dropped = bench.part.drops["too many brackets on their way"]
    assert dropped < 30_000 * 0.1
    assert sum(line.id >= 0 for line in bench.emitted) == 30_000 - dropped


def test_suspend_takes_what_was_reached_and_keeps_the_rest() -> None:
    device = FakeDevice(drift=40e-6)
    bench = Bench(device)
    slow = FakeStream(3)
    bench.phase(1, device.current, MS, 10 * MS)
    bench.phase(2, slow, 60 * SECOND)
    before = device.host_ns
    bench.brackets.suspend()
    assert device.host_ns - before < MS  # it did not wait for the slow stream
    assert [line.id for line in bench.emitted] == [1]
    bench.check(range(1, 2), 60_000)
    device.pass_ns(100 * SECOND)  # asleep
    bench.phase(3, device.current, MS)
    bench.settle()
    bench.check(range(1, 4), MS)
    assert bench.part == Part()
    assert device.synchronized == 0


def test_close_emits_what_was_reached_and_counts_the_rest() -> None:
    device = FakeDevice()
    bench = Bench(device)
    bench.phase(1, device.current, MS, 5 * MS)
    bench.phase(2, FakeStream(3), 60 * SECOND)
    bench.phase(3, FakeStream(4), 60 * SECOND)
    bench.brackets.close()
    assert [line.id for line in bench.emitted] == [1]
    assert bench.part.drops == {"the device had not reached it at the end": 2}
    assert bench.brackets.start() is None


@pytest.mark.parametrize("where", ["start", "finish", "suspend"])
def test_an_error_ends_the_brackets_only(where: str) -> None:
    device = FakeDevice()
    bench = Bench(device)
    bench.phase(1, device.current, MS)
    handle = bench.brackets.start()
    device.error = FakeDeviceError("an illegal memory access was encountered")
    if where == "start":
        bench.brackets._devices.clear()  # the next mark asks for a new anchor
        assert bench.brackets.start() is None
    elif where == "finish":
        device.pass_ns(2 * SECOND)
        bench.brackets.finish(handle, 2)
    else:
        bench.brackets.suspend()
    assert bench.part.failures == [("device_events", "an illegal memory access was encountered")]
    queries = device.queries
    assert bench.brackets.start() is None
    bench.brackets.finish(handle, 2)
    bench.brackets.suspend()
    bench.brackets.close()
    assert (device.queries, len(bench.part.failures)) == (queries, 1)


def test_pending_brackets_are_counted_when_brackets_fail() -> None:
    device = FakeDevice()
    bench = Bench(device)
    device.launch(device.current, SECOND)
    for number in range(5):
        bench.phase(number, device.current, MS)
    device.error = FakeDeviceError("lost")
    bench.brackets.suspend()
    assert bench.part.drops == {"brackets failed": 5}


def test_no_device_is_found_out_once() -> None:
    asked = []

    def find() -> str:
        asked.append(1)
        return NO_DEVICE

    part = Part()
    brackets = DeviceBrackets(part, lambda _: None, find=find)
    assert [brackets.start() for _ in range(3)] == [None] * 3
    brackets.finish(None, 1)
    brackets.suspend()
    brackets.close()
    assert len(asked) == 1
    assert part == Part()


def test_a_device_that_is_not_initialised_yet_is_asked_for_again() -> None:
    device = FakeDevice()
    answers = [None, None, device]
    brackets = DeviceBrackets(Part(), lambda _: None, find=lambda: answers.pop(0), now=device.now)
    assert [brackets.start() is not None for _ in range(4)] == [False, False, True, True]


def test_no_context_is_opened_on_a_device_of_others() -> None:
    device = FakeDevice()
    bench = Bench(device)
    with device.on(FakeStream(0, device_index=1)):
        assert bench.brackets.start() is None
    assert device.contexts == {0}
    assert bench.part == Part()


def test_two_devices_have_clocks_and_events_of_their_own() -> None:
    device = FakeDevice()
    device.contexts.add(1)
    bench = Bench(device)
    streams = [FakeStream(0, 0), FakeStream(0, 1)]
    for number in range(40):
        bench.phase(number, streams[number % 2], MS, SECOND // 5)
    for stream in streams * 20:
        bench.phase(-1, stream, 0, SECOND // 5)
    bench.check(range(40), 60_000)
    assert {line.id % 2: line.device_index for line in bench.emitted if line.id >= 0} == {0: 0, 1: 1}


def test_a_thread_interrupted_while_inside_does_not_wait_for_itself() -> None:
    bench = Bench(FakeDevice())
    handle = bench.brackets.start()
    with bench.brackets._lock:  # as in a signal handler
        assert bench.brackets.start() is None
        bench.brackets.finish(handle, 1)
        bench.brackets.close()
    assert bench.part.drops["brackets were in use by a thread that did not go on"] == 3


def test_no_bracket_before_the_clock_is_known() -> None:
    device = FakeDevice(latency_ns=40_000)  # longer than an anchor is looked at
    bench = Bench(device)
    for number in range(20):
        bench.phase(number, device.current, MS, SECOND // 5)
    assert bench.part.drops == {"the device's clock was not known yet": 1}
    bench.settle()
    bench.check(range(1, 20), SECOND)
    bench.phase(20, device.current, MS)
    bench.settle()
    bench.check(range(20, 21), 100_000)  # from then on it is looked at for longer


def test_an_anchor_that_came_late_is_not_taken_over_a_good_one() -> None:
    device = FakeDevice(drift=20e-6)
    bench = Bench(device)
    bench.phase(0, device.current, MS)
    device.pass_ns(SECOND)
    device.launch(device.streams_made[0], 3 * MS)  # the program has this stream as well
    bench.phase(1, device.current, MS)
    device.pass_ns(50 * MS)
    bench.phase(2, device.current, MS)
    bench.settle()
    bench.check(range(3), 60_000)
