"""Public fixtures: stand-ins that say what they stand in for."""

from .fake_device import FakeDevice, FakeDeviceError, FakeEvent, FakeStream

__all__ = ["FakeDevice", "FakeDeviceError", "FakeEvent", "FakeStream"]
