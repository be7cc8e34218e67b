"""What is no JSON in a trace costs what it stands in, is told with its place, and nothing else is lost."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_text import make_events, read_fields, read_text

from slime_profiler_plugin.read import ReadError, open_trace, read_header

EVENTS = make_events(6)
GOOD = [json.dumps(event) for event in EVENTS]


def trace(*items, head="", tail=""):
    return "{" + head + '"traceEvents": [\n' + ",\n".join(items) + "\n]" + tail + "}"


def names(events):
    return [event.get("name") for event in events]


BROKEN = {
    "quote in a name": '{"ph": "X", "name": "a "quoted" name", "ts": 1}',
    "quote missing": '{"ph": "X", "name": "a, "ts": 1}',
    "brace missing": '{"ph": "X", "name": "a", "args": {"x": 1}',
    "cut in the middle": '{"ph": "X", "name": "a", "ar',
    "cut in a list of objects": '{"ph": "X", "args": {"x": [{"ph": "X", "name": "inner"}, {"y": 2}], "z": ',
    "list of objects torn": '{"ph": "X", "bad", "args": {"x": [{"ph": "X", "name": "inner"}, {"y": 2}]}}',
    "colon missing": '{"ph" "X", "name": "a"}',
    "number that is none": '{"ph": "X", "ts": 1.2.3}',
    "leading zero": '{"ph": "X", "ts": 007}',
    "nested too deeply": '{"ph": "X", "args": ' + "[" * 3000 + "]" * 3000 + "}",
    "nested too deeply and torn": '{"ph": "X", "args": ' + '{"a":[' * 3000,
    "number": "12",
    "null": "null",
    "text": '"},{"',
    "words": "Traceback (most recent call last):",
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("at", [0, 3, 6])
def test_what_is_no_event_is_counted_and_the_rest_is_read(tmp_path, broken, at):
    items = [*GOOD[:at], BROKEN[broken], *GOOD[at:]]
    events, damage = read_text(tmp_path, trace(*items, tail=', "baseTimeNanoseconds": 5'))
    assert names(events) == names(EVENTS)
    assert [(one.kind, one.lost) for one in damage] == [("corrupt", 1)]
    assert damage[0].line == at + 2
    assert read_header(tmp_path / "trace.json").base_ns == 5


@pytest.mark.parametrize("ts", ["1,5", "+1", "0x7f", "True", "1e"])
@pytest.mark.parametrize("args", ["", ', "args": {"l": [{"ph": 1}, {"ph": "a"}], "ph": {"x": 2}}'])
@pytest.mark.parametrize(("first", "last"), [(0, 6), (2, 5)])
def test_each_of_several_bad_events_in_a_row_is_counted(tmp_path, ts, args, first, last):
    bad = [f'{{"ts": {ts}, "ph": "X", "name": "bad"{args}}}'] * (last - first)
    events, damage = read_text(tmp_path, trace(*GOOD[:first], *bad, *GOOD[last:]))
    assert names(events) == names(EVENTS[:first] + EVENTS[last:])
    assert sum(one.lost for one in damage) == last - first
    assert f"; {last - first} events cannot be read" in damage[0].reason


def test_bad_events_are_counted_across_the_pieces_that_are_read(tmp_path):
    bad = ['{"ph": "X", "name": "bad", "ts": 1,5}'] * 60_000  # 2.3 MB
    events, damage = read_text(tmp_path, trace(GOOD[0], *bad, GOOD[1]))
    assert names(events) == names(EVENTS[:2])
    assert [(one.kind, one.lost) for one in damage] == [("corrupt", 60_000)]


@pytest.mark.parametrize("shift", [0, 21, 49])
def test_a_good_event_behind_bad_ones_is_read_wherever_a_piece_ends(tmp_path, shift):
    bad = '{"ph": "X", "name": "bad", "ts": 1,5}'
    good = json.dumps({"ph": "X", "name": "g" * 40, "ts": 1, "dur": 1, "pid": 1, "tid": 1})
    count = (1 << 20) // (len(bad) + 2) - 1  # pieces of text are of a megabyte
    head = f'"{"h" * shift}": 1, '
    items = [bad] * count + [good] * 3
    events, damage = read_text(tmp_path, trace(*items, *[GOOD[0]] * 9, head=head))
    assert len(events) == 12
    assert sum(one.lost for one in damage) == count


def test_a_list_within_the_list_is_read(tmp_path):
    events, damage = read_text(tmp_path, trace(*GOOD[:2], "[" + ",".join(GOOD[2:5]) + "]", GOOD[5]))
    assert names(events) == names(EVENTS)
    assert {(one.kind, one.lost) for one in damage} == {("corrupt", 0)}


def test_a_list_of_something_else_is_counted(tmp_path):
    events, damage = read_text(tmp_path, trace(*GOOD[:2], '[1, {"ph": "X"}, {"ph": "X"}]', *GOOD[2:]))
    assert names(events) == names(EVENTS)
    assert [(one.kind, one.lost) for one in damage] == [("corrupt", 2)]


def test_a_bracket_too_many_ends_no_list(tmp_path):
    events, damage = read_text(tmp_path, trace(*GOOD).replace("},\n", "},]\n", 1))
    assert names(events) == names(EVENTS)
    assert [(one.kind, one.lost) for one in damage] == [("corrupt", 0)]


def test_bytes_of_two_ranks_in_one_file_give_no_event_of_the_second(tmp_path):
    first = trace(*GOOD[:2], head='"distributedInfo": {"rank": 0}, ')
    second = trace(*GOOD[2:], head='"distributedInfo": {"rank": 1}, ')
    text = first[: first.index("op1")] + second[second.index('"rank": 1') :]
    events, damage = read_text(tmp_path, text)
    assert names(events) == ["op0"]
    assert sum(one.lost for one in damage) == 5
    assert any("another trace" in one.reason for one in damage)


def test_a_second_trace_behind_the_first_is_told(tmp_path):
    events, damage = read_text(tmp_path, trace(*GOOD[:2]) + trace(*GOOD[2:]))
    assert names(events) == ["op0", "op1"]
    assert [(one.kind, one.lost) for one in damage] == [("corrupt", 4)]


LENIENT = {
    "backslash": ('{"name": "C:\\temp \\q \\u12"}', {"name": "C:\temp \\q \\u12"}, "repaired"),
    "control characters": ('{"name": "a\x01\n\tb"}', {"name": "a\x01\n\tb"}, "repaired"),
    "half a pair": ('{"name": "a\\ud800b \\ud83d\\ude00"}', {"name": "a?b \U0001f600"}, "repaired"),
    "no numbers": ('{"args": {"x": [NaN, -Infinity, nan, -inf]}}', {"args": {"x": [None] * 4}}, "repaired"),
    "trailing commas": (
        '{"args": {"x": [1, 2,], "y": {"z": 1,},},}',
        {"args": {"x": [1, 2], "y": {"z": 1}}},
        "repaired",
    ),
    "key twice": ('{"name": "a", "name": "b", "pid": 1, "pid": "c"}', {"name": "b", "pid": "c"}, None),
    "empty": ("{}", {}, None),
    "large numbers": ('{"pid": 18446744073709551616, "id": -1e3}', {"pid": 2**64, "id": -1000}, None),
    "odd types": (
        '{"ph": 5, "pid": true, "tid": 1.5, "id": [1, {}], "name": null, "cat": 1, "args": []}',
        {"ph": 5, "pid": "true", "tid": "1.5", "id": "[1,{}]", "name": None, "cat": 1, "args": []},
        None,
    ),
}


@pytest.mark.parametrize("case", LENIENT)
def test_what_says_what_it_means_is_read(tmp_path, case):
    text, meant, told = LENIENT[case]
    events, damage = read_text(tmp_path, trace(GOOD[0], text, GOOD[1]))
    assert events == [EVENTS[0], meant, EVENTS[1]]
    assert [(one.kind, one.lost) for one in damage] == ([(told, 0)] if told else [])


def test_bytes_that_are_no_text_are_replaced_one_by_one_and_counted(tmp_path):
    text = trace(GOOD[0], '{"name": "caf@@_end", "args": {"ä": "€@"}}', '{"name": "x@"}').encode()
    events, damage = read_text(tmp_path, text.replace(b"@@", b"\xe9\xff").replace(b"@", b"\x80"))
    assert names(events) == ["op0", "caf\ufffd\ufffd_end", "x\ufffd"]
    assert events[1]["args"] == {"ä": "€\ufffd"}
    assert [(one.kind, one.reason) for one in damage] == [
        ("replaced", "4 bytes that are not UTF-8 were replaced, in 2 names")
    ]


METADATA = {
    '"note": "a "quoted" word", ': {"note"},
    '"note": "C:/tmp /"q/"", ': {"note"},
    '"note": "no end, ': {"note"},
    '"info": {"rank": 3, "list": [1, 2}, ': {"info"},
    '"info": 1 2, ': {"info"},
    "12, ": set(),
}


@pytest.mark.parametrize("broken", METADATA)
@pytest.mark.parametrize("place", ["head", "tail"])
def test_a_broken_top_level_value_costs_no_other_and_no_event(tmp_path, broken, place):
    around = f'"first": 1, {broken}\n"baseTimeNanoseconds": 7, "last": 2'
    head, tail = (f"{around}, ", "") if place == "head" else ("", f", {around}")
    events, damage = read_text(tmp_path, trace(*GOOD, head=head, tail=tail))
    header = read_header(tmp_path / "trace.json")
    assert names(events) == names(EVENTS)
    assert (header.base_ns, header.metadata["first"], header.metadata["last"]) == (7, 1, 2)
    assert not METADATA[broken] & header.metadata.keys()
    assert "corrupt" in {one.kind for one in damage}
    assert sum(one.lost for one in damage) == 0


def test_top_level_values_that_only_lenient_parsers_take_are_kept_and_told(tmp_path):
    head = '"bad": NaN, "note": "C:\\qemp\n", "digits": ' + "9" * 5000 + ", "
    events, damage = read_text(tmp_path, trace(*GOOD, head=head))
    metadata = read_header(tmp_path / "trace.json").metadata
    assert names(events) == names(EVENTS)
    assert (metadata["bad"], metadata["note"], metadata["digits"]) == (None, "C:\\qemp\n", "9" * 5000)
    assert {one.kind for one in damage} == {"repaired"}


HOSTILE = ["[", '{"a":', '"', '{"', '"\\', "},{", '{"ph":"X","a":[{},', "\\", "NaN,", " "]


@pytest.mark.parametrize("unit", HOSTILE)
@pytest.mark.parametrize("begin", ["", "[", '{"traceEvents": [', '{"a": ', '{"traceEvents": [], "a": '])
def test_hostile_text_ends_the_reading_in_order(tmp_path, unit, begin):
    path = tmp_path / "a.json"
    path.write_text(begin + unit * (30_000 // len(unit)))
    try:
        open_trace(path)
    except ReadError:
        return
    events, damage = read_fields(path)
    assert events == [] or unit.startswith('{"ph"')
    assert damage or not unit.strip()


@given(st.integers(0, 10**9), st.sampled_from('"{}[],\\:\x00\x1f\n'))
def test_one_wrong_character_costs_two_events_at_most_and_is_told(tmp_path_factory, place, character):
    text = trace(*GOOD, tail=', "traceName": "x"')
    begin = text.index(GOOD[0])
    at = begin + place % (text.index("\n]") - begin)
    events, damage = read_text(tmp_path_factory.getbasetemp(), text[:at] + character + text[at:])
    lost = [event for event in EVENTS if event not in events]
    assert len(lost) <= 2
    assert len(events) + sum(one.lost for one in damage) >= len(GOOD)
    assert len(events) <= len(GOOD) + 1
