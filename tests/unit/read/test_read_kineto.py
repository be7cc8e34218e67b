"""Traces of torch.profiler: every whole event with its exact time, and what could not be read by name."""

import gzip
import json
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from slime_profiler_plugin.read import TraceEvent, TraceRefusedError, read_header
from slime_profiler_plugin.read._events import time_ns
from slime_profiler_plugin.read.kineto import read_event_pieces
from slime_profiler_plugin.testing import ProcessFile, write_trace_window

BASE = 1_790_857_026_000_000_000


def make_events(count=40):
    events = [{"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts_ns": 0, "args": {"name": "python"}}]
    for number in range(count):
        args = {"External id": number, "Input Dims": [[4, 4], []], "text": 'a "quoted" },\n  { ä'}
        times = {"ts_ns": 10**9 + number * 1001, "dur_ns": 999}
        events.append(
            {"ph": "X", "cat": "cpu_op", "name": f"op{number}", "pid": 7, "tid": 7, **times, "args": args}
        )
    return events


def make_file(folder, events=None):
    process = ProcessFile("r", pid=7, role="actor", rank=1, epoch_ns=BASE + 10**15)
    return write_trace_window(folder, process, [3], make_events() if events is None else events)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return gzip.decompress(make_file(tmp_path_factory.mktemp("whole")).read_bytes())


class Timed(NamedTuple):
    """An event and when it was, ns; `None`: it has no usable time."""

    event: TraceEvent
    start_ns: int | None
    dur_ns: int


def timed(event):
    try:
        start = None if event.ts is UNSET else time_ns(event.ts)
        return Timed(event, start, 0 if event.dur is UNSET else time_ns(event.dur))
    except ValueError:
        return Timed(event, None, 0)


def read(path, damage=None):
    pieces = read_event_pieces(path, [] if damage is None else damage)
    return [timed(event) for piece in pieces for event in piece]


def names(events):
    return [json.loads(bytes(timed.event.name)) for timed in events]


def test_events_keep_their_text_and_get_exact_times(tmp_path):
    events = read(make_file(tmp_path))
    assert len(events) == 41
    assert names(events)[1:] == [f"op{n}" for n in range(40)]
    assert [timed.start_ns for timed in events[1:]] == [10**15 + 10**9 + n * 1001 for n in range(40)]
    assert {timed.dur_ns for timed in events[1:]} == {999}
    assert json.loads(bytes(events[5].event.args)) == make_events()[5]["args"]


def test_header_tells_who_wrote_it_and_where_time_begins(tmp_path):
    header = read_header(make_file(tmp_path))
    assert header.base_ns == BASE
    assert header.rollouts == [3]
    assert (header.identity["role"], header.identity["rank"], header.identity["incarnation"][:2]) == (
        "actor",
        1,
        "7-",
    )
    assert [pair.error_ns for pair in header.clock_pairs] == [100]
    assert header.metadata["distributedInfo"]["rank"] == 1


@given(st.data())
def test_file_cut_anywhere_keeps_every_whole_event(tmp_path_factory, whole, data):
    cut = data.draw(st.integers(0, len(whole) - 3))
    path = tmp_path_factory.getbasetemp() / "cut.json"
    path.write_bytes(whole[:cut])
    begin = whole.index(b'"traceEvents": [') + len(b'"traceEvents": [')
    if cut < begin:
        with pytest.raises(TraceRefusedError, match="ends before a traceEvents list begins"):
            read_header(path)
        return
    damage = []
    events = read(path, damage)
    # Each event ends with its closing brace at two spaces.
    ends = [i + 4 for i in range(len(whole)) if whole[i : i + 4] == b"\n  }"]
    kept = sum(end <= cut for end in ends if end > begin)
    assert len(events) == kept
    assert read_header(path).base_ns == BASE
    assert any(one.kind == "truncated" for one in damage)
    assert sum(one.lost for one in damage) <= 1


def test_whole_file_has_no_damage(tmp_path, whole):
    path = tmp_path / "a.json"
    path.write_bytes(whole)
    damage = []
    assert len(read(path, damage)) == 41
    assert damage == []


def test_compressed_file_cut_is_read_to_there(tmp_path):
    path = make_file(tmp_path, make_events(3000))
    packed = path.read_bytes()
    path.write_bytes(packed[: len(packed) * 6 // 10])
    damage = []
    events = read(path, damage)
    assert 1000 < len(events) < 3001
    assert names(events)[1:] == [f"op{n}" for n in range(len(events) - 1)]
    assert {one.kind for one in damage} == {"truncated"}


def test_base_behind_the_events_is_found(tmp_path):
    path = tmp_path / "a.json"
    event = '{\n    "ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 10.000, "dur": 1.000\n  }'
    path.write_text(f'{{"traceEvents": [\n  {event}\n  ],"baseTimeNanoseconds": {BASE}, "traceName": "x"\n}}')
    header = read_header(path)
    assert (header.base_ns, header.metadata["traceName"]) == (BASE, "x")
    assert read(path)[0].start_ns == 10_000


def test_absent_base_means_absolute_times_and_says_so(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(
        '{"traceEvents": [\n{"ph":"X","name":"a","pid":1,"tid":1,"ts":1623143089861000,"dur":1}]}'
    )
    assert read_header(path).base_ns is None
    assert read(path)[0].start_ns == 1_623_143_089_861_000_000


def test_truncated_before_its_base_is_read(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"traceEvents": [\n{"ph":"X","name":"a","pid":1,"tid":1,"ts":10.5,"dur":1},')
    header = read_header(path)
    assert header.base_ns is None
    assert read(path)[0].start_ns == 10_500


def test_odd_events_are_read_leniently_and_written_strictly(tmp_path, whole):
    odd = (
        b'{"ph": "X", "name": "ctl\x01\n", "pid": 7, "tid": 7, "ts": 5.000, "dur": 1.000},\n  '
        b'{"ph": "X", "name": "nan", "pid": 7, "tid": 7, "ts": 6.000, "dur": 1.0, '
        b'"args": {"x": NaN, "y": 0.10}},\n  '
        b'{"ph": "X", "name": "lone \\ud800", "pid": 7, "tid": "7", "ts": "7.5", "dur": 1, '
        b'"cname": "good"},\n  '
        b'{"ph": "X", "name": "caf\xe9\xff_end", "pid": 7, "tid": 7, "ts": 8.000, "dur": 1.000},\n  '
    )
    path = tmp_path / "a.json"
    path.write_bytes(whole.replace(b'"traceEvents": [\n  ', b'"traceEvents": [\n  ' + odd))
    damage = []
    events = read(path, damage)
    assert len(events) == 45
    assert names(events)[:4] == ["ctl\x01\n", "nan", "lone ?", "caf\ufffd\ufffd_end"]
    assert [timed.start_ns for timed in events[:4]] == [5000, 6000, 7500, 8000]
    assert json.loads(bytes(events[1].event.args)) == {"x": None, "y": 0.1}
    assert events[2].event.more == {"cname": "good"}
    assert [(one.kind, one.reason[:2]) for one in damage] == [
        ("repaired", "3 "),
        ("replaced", "2 "),
    ]


def test_event_that_is_no_json_is_counted_and_the_next_one_is_read(tmp_path, whole):
    path = tmp_path / "a.json"
    broken = b'{\n    "ph": "X", "name": "a "quoted" name", "pid": 7\n  },\n  '
    path.write_bytes(whole.replace(b'"traceEvents": [\n  ', b'"traceEvents": [\n  ' + broken))
    damage = []
    assert len(read(path, damage)) == 41
    assert [(one.kind, one.lost) for one in damage] == [("corrupt", 1)]
    at = whole.index(b"[", whole.index(b"traceEvents")) + 4
    assert f"event at byte {at}" in damage[0].reason
    assert damage[0].line == whole[:at].count(b"\n") + 1


def test_backslash_that_escapes_nothing_is_taken_for_itself_and_told(tmp_path, whole):
    path = tmp_path / "a.json"
    event = b'{\n    "ph": "X", "name": "C:\\qemp", "pid": 7\n  },\n  '
    path.write_bytes(whole.replace(b'"traceEvents": [\n  ', b'"traceEvents": [\n  ' + event))
    damage = []
    assert names(read(path, damage))[0] == "C:\\qemp"
    assert [(one.kind, one.lost) for one in damage] == [("repaired", 0)]


def test_look_alike_of_an_event_boundary_inside_args_is_no_boundary(tmp_path):
    nested = [{"a": 1}, {"ph": "X", "name": "no event", "ts": 1}]
    text = json.dumps(
        {"ph": "X", "name": "outer", "pid": 1, "tid": 1, "ts": 5, "dur": 2, "args": {"n": nested}}
    )
    text = text.replace("}, {", "\n  },\n  {")
    path = tmp_path / "a.json"
    many = ",\n  ".join([text] * 3000)
    path.write_text(f'{{"baseTimeNanoseconds": 0, "traceEvents": [\n  {many}\n  ]}}')
    damage = []
    events = read(path, damage)
    assert set(names(events)) == {"outer"}
    assert len(events) == 3000
    assert damage == []


def test_event_without_a_usable_time_is_marked(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(
        '{"baseTimeNanoseconds": 0, "traceEvents": [\n{"ph":"X","name":"a","pid":1,"tid":1},\n'
        '{"ph":"X","name":"b","pid":1,"tid":1,"ts":"soon","dur":1}]}'
    )
    assert [timed.start_ns for timed in read(path)] == [None, None]


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"nodes": []}', b"not a trace at all"])
def test_what_is_no_trace_is_refused(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(TraceRefusedError, match=r"a\.json: no trace"):
        read_header(path)
