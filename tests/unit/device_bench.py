"""Device brackets of one fake device, with the truth beside them, for the tests of brackets."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from slime_profiler_plugin.record._devices import DeviceBrackets
from slime_profiler_plugin.schema import Device
from slime_profiler_plugin.testing import FakeDevice, FakeStream

MS = 1_000_000
SECOND = 1_000 * MS


@dataclass
class Part:
    """What the recorder hands to its parts, keeping what it is told."""

    drops: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str]] = field(default_factory=list)

    @property
    def guard(self) -> Part:
        return self

    def drop(self, what: str, reason: str, count: int = 1) -> None:
        assert what == "device"
        self.drops[reason] += count

    def failed(self, part: str, error: BaseException | str) -> None:
        self.failures.append((part, str(error)))


class Bench:
    """Brackets of one fake device, and the truth beside what they say."""

    def __init__(self, device: FakeDevice, cap: int = 20_000) -> None:
        self.device = device
        self.part = Part()
        self.emitted: list[Device] = []
        #: Host times: first mark, kernel's begin and end, second mark.
        self.truth: dict[int, tuple[int, int, int, int]] = {}
        self.brackets = DeviceBrackets(
            self.part, self.emitted.append, find=lambda: device, now=device.now, cap=cap
        )

    def phase(self, number: int, stream: FakeStream, kernel_ns: int, host_ns: int = 0) -> None:
        """A phase that launches one kernel and takes `host_ns` besides."""
        device = self.device
        with device.on(stream):
            handle = self.brackets.start()
            begin = stream.last_mark_ns
            kernel = device.launch(stream, kernel_ns)
            device.pass_ns(host_ns)
            self.brackets.finish(handle, number)
            if handle is not None:
                self.truth[number] = (begin, *kernel, stream.last_mark_ns)

    def settle(self) -> None:
        """Phases that launch nothing, until the work of the others is over and placed."""
        for number in range(-2_000, 0):
            self.device.pass_ns(SECOND // 20)
            self.phase(number, FakeStream(99), 0)
            if number > -1_900 and self.brackets.pending < 50:
                break

    def check(self, numbers: range, most_uncertain_ns: int) -> None:
        """Both marks are right within the stated uncertainty, and the kernel is between them."""
        by_id = {line.id: line for line in self.emitted}
        for number in numbers:
            line, (first, begin, end, second) = by_id[number], self.truth[number]
            start_ns, end_ns, unsure = line.start_ns, line.start_ns + line.dur_ns, line.uncertainty_ns
            assert abs(start_ns - first) <= unsure, number
            assert abs(end_ns - second) <= unsure, number
            assert start_ns - unsure <= begin <= end <= end_ns + unsure, number
            assert unsure <= most_uncertain_ns, number
