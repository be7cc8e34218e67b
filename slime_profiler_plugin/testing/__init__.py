"""Public fixtures: run folders made up for tests, and stand-ins that say what they stand in for."""

from ._process_file import ProcessFile
from ._synthetic import MS, SyntheticRun, write_synthetic_run
from ._trace_file import write_trace_window
from .fake_device import FakeDevice, FakeDeviceError, FakeEvent, FakeStream

__all__ = [
    "MS",
    "FakeDevice",
    "FakeDeviceError",
    "FakeEvent",
    "FakeStream",
    "ProcessFile",
    "SyntheticRun",
    "write_synthetic_run",
    "write_trace_window",
]
