"""Finding torch's accelerator without touching it, and the driver's capture mode."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from device_bench import Part

from slime_profiler_plugin.record import _capture_mode as capture_mode
from slime_profiler_plugin.record._device_layer import NO_DEVICE, DeviceError, TorchLayer, find_layer
from slime_profiler_plugin.record._devices import open_brackets


def fake_torch(
    *, device: str | None = "cuda", initialized: bool = True, contexts: tuple[int, ...] = (0,)
) -> Any:
    """The few names of torch that brackets look at; an answer that may not be asked for raises."""
    stream = SimpleNamespace(stream_id=0, device_index=0)
    module = SimpleNamespace(
        is_initialized=lambda: initialized,
        is_current_stream_capturing=lambda: False,
        memory_reserved=lambda index: 4096 if index in contexts else 0,
    )
    accelerator = SimpleNamespace(
        current_accelerator=lambda: None if device is None else SimpleNamespace(type=device),
        current_stream=lambda: stream,
    )
    return SimpleNamespace(
        accelerator=accelerator,
        Event=lambda **options: options,
        Stream=lambda **options: options,
        get_device_module=lambda _type: module,
        _C=SimpleNamespace(_cuda_hasPrimaryContext=lambda index: index in contexts),
        stream=stream,
        module=module,
    )


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a torch where `find_layer` looks, and a driver that can set the capture mode."""

    def load(torch: Any, *, mode: bool = True) -> Any:
        monkeypatch.setitem(sys.modules, "torch", torch)
        found = capture_mode.CaptureMode(lambda _mode: 0) if mode else None
        monkeypatch.setattr("slime_profiler_plugin.record._device_layer.find_capture_mode", lambda: found)
        return torch

    return load


def test_without_torch_nothing_is_imported() -> None:
    program = """
import sys
from slime_profiler_plugin.record._devices import DeviceBrackets
brackets = DeviceBrackets(None, None)
assert brackets.start() is None
brackets.finish(None, 1); brackets.suspend(); brackets.close()
assert not {"torch", "ray", "nvtx"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_torch_that_is_still_loading_is_waited_for(loaded: Any) -> None:
    loaded(SimpleNamespace())
    assert find_layer() is None


def test_torch_without_an_accelerator_is_the_end_of_it(loaded: Any) -> None:
    loaded(fake_torch(device=None))
    assert find_layer() == NO_DEVICE


def test_without_a_device_there_are_no_brackets_at_all(loaded: Any) -> None:
    loaded(fake_torch(device=None))
    assert open_brackets(Part(), lambda _: None) is None
    loaded(fake_torch(initialized=False))
    assert open_brackets(Part(), lambda _: None) is not None


def test_an_accelerator_that_does_not_say_whether_it_is_in_use_is_left_alone(loaded: Any) -> None:
    torch = loaded(fake_torch(device="mps"))
    del torch.module.is_initialized
    assert find_layer() == NO_DEVICE


def test_a_device_is_found_once_the_program_initialised_it(loaded: Any) -> None:
    loaded(fake_torch(initialized=False))
    assert find_layer() is None
    loaded(fake_torch())
    layer = find_layer()
    assert isinstance(layer, TorchLayer)
    assert layer.device_type == "cuda"


def test_a_device_without_a_context_of_ours_has_no_stream(loaded: Any) -> None:
    torch = loaded(fake_torch(contexts=(0,)))
    layer = find_layer()
    assert isinstance(layer, TorchLayer)
    torch.stream.device_index = 1
    assert layer.current_stream() is None
    torch.stream.device_index = 0
    assert layer.current_stream() is torch.stream


@pytest.mark.parametrize("device", ["xpu", "npu", "musa"])
def test_other_devices_are_in_use_when_they_hold_memory(loaded: Any, device: str) -> None:
    torch = loaded(fake_torch(device=device, contexts=(3,)), mode=False)
    layer = find_layer()
    assert isinstance(layer, TorchLayer)
    assert layer.current_stream() is None
    torch.stream.device_index = 3
    assert layer.current_stream() is torch.stream
    assert layer.new_event() == {"device": device, "enable_timing": True}
    assert layer.new_stream(3) == {"device": f"{device}:3"}


def test_no_capture_function_means_no_capture(loaded: Any) -> None:
    torch = loaded(fake_torch(device="xpu"), mode=False)
    del torch.module.is_current_stream_capturing
    layer = find_layer()
    assert isinstance(layer, TorchLayer)
    assert not layer.is_capturing()
    assert not layer.is_stream_capturing(torch.stream)


def test_cuda_whose_captures_we_could_break_is_refused(loaded: Any) -> None:
    loaded(fake_torch(), mode=False)
    with pytest.raises(DeviceError, match="capture"):
        find_layer()


def test_the_mode_is_relaxed_inside_and_what_it_was_outside() -> None:
    modes = [0]

    def exchange(argument: Any) -> int:
        mode = argument._obj
        modes.append(mode.value)
        mode.value = modes[-2]
        return 0

    mode = capture_mode.CaptureMode(exchange)
    for _ in range(2):
        with mode:
            assert modes[-1] == 2
        assert modes[-1] == 0


def test_a_refused_mode_is_an_error() -> None:
    with pytest.raises(OSError, match="error 1"), capture_mode.CaptureMode(lambda _mode: 1):
        pass


@pytest.mark.parametrize(
    ("library", "function"),
    [
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.570.1", "cuThreadExchangeStreamCaptureMode"),
        ("/opt/rocm lib/libamdhip64.so.6", "hipThreadExchangeStreamCaptureMode"),
    ],
)
def test_the_loaded_driver_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, function: str
) -> None:
    maps = tmp_path / "maps"
    other = "7f00-7f01 r-xp 00000000 08:01 77 /usr/lib/libcudart.so.12"
    anonymous = "7f02-7f03 rw-p 00000000 00:00 0 "
    maps.write_text(f"{other}\n{anonymous}\n7f04-7f05 r-xp 00000000 08:01 78                 {library}\n")

    def open_library(path: str) -> Any:
        assert path == library
        return SimpleNamespace(**{function: lambda _mode: 0})

    monkeypatch.setattr(ctypes, "PyDLL", open_library)
    mode = capture_mode.find_capture_mode(maps)
    assert mode is not None
    with mode:
        pass


def test_no_driver_no_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r-xp 00000000 08:01 77 /usr/lib/libcuda.so.1\n")
    monkeypatch.setattr(ctypes, "PyDLL", lambda _path: SimpleNamespace())
    assert capture_mode.find_capture_mode(maps) is None
    assert capture_mode.find_capture_mode(Path("/proc/self/maps")) is None


def test_the_real_torch_of_this_environment_has_what_is_asked_of_it() -> None:
    torch = pytest.importorskip("torch")
    found = find_layer()
    if torch.accelerator.current_accelerator() is None:
        assert found == NO_DEVICE
    else:
        assert found is None or isinstance(found, TorchLayer)
    assert {"record", "query", "elapsed_time"} <= set(dir(torch.Event))
    assert {"stream_id", "device_index"} <= set(dir(torch.Stream))
