"""What was lost is counted in lines that can be written, whatever the names."""

from __future__ import annotations

import threading
from pathlib import Path

from recordings import read_recording

from slime_profiler_plugin import schema, timeline
from slime_profiler_plugin.record._drops import Drops
from slime_profiler_plugin.record._lines import drop_line


def test_lone_surrogates_cost_no_count() -> None:
    drops = Drops()
    drops.add("ph\udcff", "r\udcff", 1, {"a\udcff": 1})
    drops.add("ph\udcff", "r\udcff", 1, {"a\udcfe": 1})
    drops.add("phase", "queue full", 3, {"b": 3})
    first, second = map(drop_line, drops.take())
    assert (first.what, first.reason, first.count, first.names) == ("ph?", "r?", 2, {"a?": 2})
    assert (second.what, second.reason, second.count, second.names) == ("phase", "queue full", 3, {"b": 3})
    assert schema.encode_lines([first, second]).count(b"\n") == 2
    assert drops.total == 5


def test_names_that_cannot_be_said_are_counted(tmp_path: Path) -> None:
    config = {"out": str(tmp_path), "outputs": {"nvtx": False}, "records": {"period_s": 3600, "queue": 1}}
    assert timeline.start(config, run_id="run")

    def work() -> None:
        with timeline.phase("outer"):
            for name in ("\udcff", 10**5000):
                with timeline.phase(name):  # type: ignore[arg-type]
                    pass

    with timeline.phase("first"):
        pass
    thread = threading.Thread(target=work, name="\udcff")
    thread.start()
    thread.join()
    timeline.stop()
    got = read_recording(tmp_path)
    got.check_counts()
    assert "?" in [line.name for line in got.all(schema.Thread)]
    counts = {"first": 1, "outer": 1, "?": 1, "<int of 16610 bits>": 1}
    for phase in got.phases:
        counts[phase.name] -= 1
    for drop in got.drops:
        assert (drop.what, drop.reason) == ("phase", "queue full")
        for name, count in drop.names.items():
            counts[name] -= count
    assert set(counts.values()) == {0}
