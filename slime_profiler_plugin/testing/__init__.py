"""Public fixtures, each a stand-in that says what it stands in for: made-up run folders and devices."""

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
