"""The GPU checks' own logic, on the fake device layer and a trace written by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from checks import why_no_gpu
from kineto_file import kernels_of, names_in, read_events, synchronizing_calls
from workbench import Brackets, Losses, drift_ppm, judge_enclosure, paired_overhead

from slime_profiler_plugin.schema import Device
from slime_profiler_plugin.testing import FakeDevice, FakeStream

RUN = Path(__file__).with_name("run.py")


def test_brackets_of_the_fake_enclose_its_kernels() -> None:
    device = FakeDevice(drift=60e-6)
    bench = Brackets(find=lambda: device, now=device.now)
    streams = [FakeStream(number) for number in range(3)]
    kernels = []
    for number in range(60):
        stream = streams[number % 3]
        with device.on(stream):
            assert bench.phase(number, lambda s=stream: kernels.append(device.launch(s, 3_000_000)))
        device.pass_ns(50_000_000)
    bench.anchor(rest=lambda seconds: device.pass_ns(int(seconds * 1e9)))
    result = judge_enclosure([(bench.by_id[n], *kernels[n]) for n in range(60)])
    assert (result.checked, result.beyond_uncertainty) == (60, 0)
    assert result.worst_ns < 0
    assert bench.losses == Losses()
    made, leaked = bench.pool()
    assert leaked == 0
    assert made < 60
    device.host_ns += 10**9
    next(iter(bench.brackets._devices.values())).pool.take()
    assert bench.pool()[1] == 1  # a leak would be seen


def line(start_ns: int, dur_ns: int, uncertainty_ns: int) -> Device:
    return Device(
        id=1, device_type="fake", device_index=0, stream=0,
        start_ns=start_ns, dur_ns=dur_ns, uncertainty_ns=uncertainty_ns,
    )  # fmt: skip


def test_an_excess_is_what_is_outside_plus_nothing() -> None:
    inside = judge_enclosure([(line(100, 50, 10), 100, 150)])
    assert (inside.worst_ns, inside.beyond_uncertainty) == (-10, 0)
    early = judge_enclosure([(line(100, 50, 10), 85, 140), (line(100, 50, 10), 110, 120)])
    assert (early.checked, early.worst_ns, early.beyond_uncertainty) == (2, 5, 1)
    late = judge_enclosure([(line(100, 50, 10), 110, 190)])
    assert late.worst_ns == 30


def test_drift_is_a_slope() -> None:
    points = [(10**12 + host, 77 + host + host * 25 // 10**6) for host in range(0, 10**11, 10**9)]
    assert drift_ppm(points) == pytest.approx(25, abs=0.01)


def test_overhead_is_the_median_of_the_pairs() -> None:
    pairs = [(1.0, 1.0 + n / 1000) for n in (1, 2, 3, 4, 500)]
    median, low, high = paired_overhead(pairs)
    assert (median, low, high) == pytest.approx((0.003, 0.002, 0.004))


def test_what_is_read_from_a_trace(tmp_path: Path) -> None:
    def event(category: str, name: str, ts: str, dur: str, correlation: int = 0, tid: object = 7) -> str:
        args = json.dumps({"correlation": correlation} if correlation else {})
        return (
            f'{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":{json.dumps(tid)},'
            f'"ts":{ts},"dur":{dur},"args":{args}}}'
        )

    events = [
        event("user_annotation", "check_0", "100.001", "50.5"),
        event("cuda_runtime", "cudaLaunchKernel", "101.0", "2.0", 11),
        event("cuda_driver", "cuLaunchKernelEx", "110.0", "2.0", 12, tid="7"),
        event("cuda_runtime", "cudaLaunchKernel", "151.0", "2.0", 13),
        event("cuda_runtime", "cudaLaunchKernel", "120.0", "2.0", 14, tid=8),
        event("kernel", "a", "9007199254.741", "10.25", 11, tid=20),
        event("kernel", "b", "130.0", "1.0", 12, tid=20),
        event("kernel", "c", "160.0", "1.0", 13, tid=20),
        event("kernel", "d", "160.0", "1.0", 14, tid=20),
        event("gpu_user_annotation", "check_0", "120.0", "20.0", tid=20),
        event("cuda_runtime", "cudaDeviceSynchronize", "200.0", "5.0"),
        event("cuda_runtime", "cudaStreamSynchronize", "210.0", "5.0"),
        event("cuda_runtime", "cudaStreamSynchronize", "220.0", "5.0"),
        '{"ph":"M","name":"process_name","pid":1,"args":{"name":"python"}}',
    ]
    path = tmp_path / "trace.json"
    path.write_text(f'{{"traceEvents":[{",".join(events)}],"baseTimeNanoseconds":1000000000000}}')
    read = read_events(path)
    kernels = kernels_of(read, "check_0")
    assert [kernel.name for kernel in kernels] == ["a", "b"]
    assert kernels[0].begin_ns == 10**12 + 9007199254741
    assert kernels[0].end_ns - kernels[0].begin_ns == 10_250
    assert names_in(read, "gpu_user_annotation") == {"check_0"}
    assert synchronizing_calls(read) == {"cudaDeviceSynchronize": 1, "cudaStreamSynchronize": 2}


@pytest.mark.skipif(why_no_gpu() is None, reason="there is a GPU, and the checks take minutes")
def test_the_runner_says_why_it_skips() -> None:
    finished = subprocess.run(
        [sys.executable, str(RUN)], capture_output=True, text=True, timeout=120, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == f"skipped: {why_no_gpu()}\n"


def test_the_runner_knows_its_checks() -> None:
    finished = subprocess.run(
        [sys.executable, str(RUN), "warp_drive"], capture_output=True, text=True, timeout=120, check=False
    )
    assert finished.returncode == 2
    assert "no such check: warp_drive; there are: brackets_enclose_their_kernels" in finished.stdout
