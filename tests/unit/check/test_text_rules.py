"""SP4xx: each rule, what it says, and what is just not it, in every layout of the text."""

from __future__ import annotations

import gzip
import json

import pytest
from small_traces import BASE_NS, event, findings, slice_, text_findings, write

from slime_profiler_plugin.check import check_paths

HEAD = f'{{"baseTimeNanoseconds": {BASE_NS}, "traceEvents": ['


def trace(*events: str, between: str = ",\n") -> str:
    return HEAD + between.join(events) + "]}"


def op(name: str = "op", more: str = "", ts: int = 5) -> str:
    return f'{{"ph": "X", "name": "{name}", "pid": 1, "tid": 1, "ts": {ts}, "dur": 1{more}}}'


@pytest.mark.parametrize("between", [", ", ",", ",\n", ",\n  "])
@pytest.mark.parametrize("before", [0, 6_000])
def test_faults_are_found_in_any_layout_and_at_any_place(tmp_path, between, before):
    """With 6,000 events before it the fault is in a later chunk of the text."""
    many = [op(ts=10 * number) for number in range(before)]
    text = trace(*many, op("a\x01b", ts=10**7), op("tail", ts=2 * 10**7), between=between)
    found = text_findings(tmp_path, text)
    assert found.keys() == {"SP407"}
    assert found["SP407"].count == 1
    line = text.count("\n", 0, text.index("\x01")) + 1
    assert f"at line {line}, byte {text.index(chr(1))}" in found["SP407"].example


def test_numbers_that_are_not_finite(tmp_path):
    found = text_findings(tmp_path, trace(op(more=', "args": {"a": NaN, "b": [-Infinity, 1], "c": "NaN, "}')))
    assert found.keys() == {"SP405"}
    assert found["SP405"].count == 2
    assert text_findings(tmp_path, trace(op("a NaN, b: Infinity, c nan"), op("inf", ts=9))) == {}


def test_escapes(tmp_path):
    assert text_findings(tmp_path, trace(op(r"a\"b\\c\/d\u00e9\n"), op("x", ts=9))) == {}
    found = text_findings(tmp_path, trace(op(r"C:\work\q"), op(r"\u12", ts=9), op("x", ts=19)))
    assert found["SP406"].count == 3
    assert found.keys() == {"SP406"}


def test_line_breaks_in_strings_are_control_characters_and_between_events_are_not(tmp_path):
    assert text_findings(tmp_path, trace(op("x"), op("y", ts=9), between=",\r\n\t")) == {}
    assert text_findings(tmp_path, trace(op("a\nb\tc"), op("y", ts=9)))["SP407"].count == 2


def test_bytes_that_are_not_utf8(tmp_path):
    assert text_findings(tmp_path, trace(op("café"))) == {}
    found = text_findings(tmp_path, trace(op("caf@@_end")).encode().replace(b"@@", b"\xe9\xff"))
    assert found.keys() == {"SP408"}
    assert found["SP408"].count == 2
    assert r"caf\xe9\xff_end" in found["SP408"].example


@pytest.mark.parametrize(
    ("name", "count"), [(r"C:\\temp\\", 1), (r"C:\\temp", 0), (r"a\"", 0), (r"\\\\", 1), (r"\\\"", 0)]
)
def test_strings_that_end_in_a_backslash(tmp_path, name, count):
    found = text_findings(tmp_path, trace(op(name)))
    assert found.keys() == ({"SP409"} if count else set())


def test_keys_that_stand_twice_in_one_object(tmp_path):
    nested = ', "args": {"ts": 1, "a": {"ts": 2}, "b": [{"x": 1}, {"x": 2}]}'
    assert text_findings(tmp_path, trace(op(more=nested), op(more=nested, ts=9))) == {}
    found = text_findings(
        tmp_path, trace(op(more=', "args": {"a": 1, "b": {"c": 1}, "a": 2}, "ts" : 6'), op(ts=9))
    )
    assert found.keys() == {"SP410"}
    assert found["SP410"].count == 2


def test_keys_of_the_same_beginning_length_and_end_are_different(tmp_path):
    args = {f"Input argument number {number:04d} of all of them": number for number in range(500)}
    assert findings(tmp_path, slice_(args=args)) == {}


@pytest.mark.parametrize(
    ("value", "large"),
    [
        ("9007199254740992", False),
        ("9007199254740993", True),
        ("-9007199254740993", True),
        ("18014398509481984", False),  # a double holds it
        ("9223372036854775808", True),  # 64 bits do not
        ("9007199254740993.0", False),
        ("0.9007199254740993", False),
        ('"9007199254740993"', False),
        ("1795966682358478", False),
    ],
)
@pytest.mark.parametrize("shift", range(4))
def test_integers_that_are_too_large(tmp_path, value, large, shift):
    found = text_findings(tmp_path, trace(op("x" * shift, more=f', "args": {{"v": {value}}}')))
    assert found.keys() == ({"SP412"} if large else set())


def test_times_in_ns_are_large_by_nature(tmp_path):
    top = {"baseTimeNanoseconds": BASE_NS + 1, "made": {"base_unix_ns": BASE_NS + 1}}
    assert findings(tmp_path, slice_(), **top) == {}


@pytest.mark.parametrize("end", [",]}", ", ]}", ",\n]\n}", "],}"])
def test_commas_before_a_closing_bracket(tmp_path, end):
    found = text_findings(tmp_path, HEAD + op("a,]b") + end)
    assert found.keys() == {"SP413"}
    assert found["SP413"].count == 1


def test_a_name_with_raw_quotes_does_not_make_the_rest_of_the_file_strange(tmp_path):
    found = text_findings(tmp_path, trace(op("a"), op('say "hi', ts=9), op("b", ts=19), op("c", ts=29)))
    assert found.keys() == {"SP403"}
    assert found["SP403"].count == 1


def test_names_of_c_plus_plus_with_braces_and_commas(tmp_path):
    names = [op("f(x)::{lambda(int)#1}, g::{lambda()#2},", ts=10 * number) for number in range(40_000)]
    assert text_findings(tmp_path, trace(*names)) == {}


@pytest.mark.parametrize("packed", [False, True])
def test_file_that_is_cut_off(tmp_path, packed):
    text = trace(*(op(f"op {number}", ts=10 * number) for number in range(3000))).encode()
    content = gzip.compress(text) if packed else text
    path = tmp_path / ("trace.json.gz" if packed else "trace.json")
    path.write_bytes(content[: len(content) * 6 // 10])
    report = check_paths([path])
    assert [finding.code for finding in report.findings] == ["SP402"]
    assert report.exit_code() == 3


def test_file_that_is_no_trace_says_what_it_is(tmp_path):
    assert "SQLite" in text_findings(tmp_path, b"SQLite format 3\0" + bytes(100))["SP401"].message
    assert text_findings(tmp_path, "<html></html>").keys() == {"SP401"}


def test_trace_that_is_empty(tmp_path):
    assert findings(tmp_path).keys() == {"SP404"}
    only_names = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "x"}}
    assert findings(tmp_path, only_names)["SP404"].message == "no events but 1 of metadata"


def test_events_without_a_phase_letter_and_with_an_unknown_one(tmp_path):
    found = findings(tmp_path, slice_(ph=None), {}, event("Z"), slice_(ts=9))
    assert {code: finding.count for code, finding in found.items()} == {"SP411": 2, "SP415": 1}


def test_bare_array_without_its_end_is_whole(tmp_path):
    """The format allows it."""
    text = "[\n" + ",\n".join(json.dumps(slice_(ts=10 * at)) for at in range(3))
    assert text_findings(tmp_path, text).keys() == {"SP207"}


def test_file_that_is_not_there(tmp_path):
    report = check_paths([tmp_path / "gone.json", write(tmp_path / "there.json", [slice_()])])
    (finding,) = report.findings
    assert (finding.code, finding.file) == ("SP414", str(tmp_path / "gone.json"))
    assert report.files == [str(tmp_path / "there.json")]
