"""Record files: every whole line, in order, and what could not be read by name."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_profiler_plugin import schema
from slime_profiler_plugin.read import LinesRefusedError, ReadError, Segment, read_lines
from slime_profiler_plugin.testing import ProcessFile


def make_lines(count=6):
    process = ProcessFile("r", pid=7, role="actor", rank=0)
    for number in range(count):
        process.phase(
            "train_step", number * 100, number * 100 + 50, step=number, attrs={"note": 'ä "q" {\n}'}
        )
    process.end(1000)
    return process.lines


def read(path, damage, size=None):
    return [item.line for item in read_lines([Segment(path, size)], damage)]


LINES = make_lines()
CONTENT = schema.encode_lines(LINES)


def whole_lines(cut):
    """How many lines of CONTENT are whole in its first `cut` bytes, the newline not needed."""
    ends = [i for i, byte in enumerate(CONTENT) if byte == 0x0A]
    return sum(end <= cut for end in ends)


def test_lines_come_back_as_they_were_written(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(CONTENT)
    damage = []
    assert read(path, damage) == LINES
    assert damage == []


@given(st.integers(0, len(CONTENT)))
def test_file_cut_anywhere_loses_its_torn_tail_only(tmp_path_factory, cut):
    path = tmp_path_factory.getbasetemp() / "cut.jsonl"
    path.write_bytes(CONTENT[:cut])
    damage = []
    kept = whole_lines(cut)
    assert read(path, damage) == LINES[:kept]
    torn = cut - (len(schema.encode_lines(LINES[:kept])) if kept else 0)
    if torn > 0:
        (one,) = damage
        assert (one.kind, one.file, one.line, one.lost) == ("truncated", str(path), kept + 1, 1)
        assert f"torn after {torn} bytes" in one.reason
    else:
        assert damage == []


@given(st.integers(0, len(gzip.compress(CONTENT, mtime=0)) - 1))
def test_compressed_segment_cut_anywhere_gives_a_prefix_and_says_so(tmp_path_factory, cut):
    path = tmp_path_factory.getbasetemp() / "cut.jsonl.gz"
    path.write_bytes(gzip.compress(CONTENT, mtime=0)[:cut])
    damage = []
    lines = read(path, damage)
    assert lines == LINES[: len(lines)]
    if cut:
        assert damage
        assert all(one.kind == "truncated" for one in damage)


def test_compressed_segment_with_damage_inside_gives_what_stands_before_it(tmp_path):
    content = schema.encode_lines(make_lines(5000))
    packed = bytearray(gzip.compress(content, mtime=0))
    packed[len(packed) // 2] ^= 0xFF
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(packed)
    damage = []
    lines = read(path, damage)
    assert len(lines) > 1000
    assert lines[:1000] == make_lines(5000)[:1000]
    assert any("gzip" in one.reason for one in damage)


def test_bad_line_is_counted_with_its_number_and_the_rest_is_read(tmp_path):
    path = tmp_path / "a.jsonl"
    bad = [
        b'{"kind":"phase","id":1}',  # fields are missing
        b"garbage",
        b'{"kind":"mark","name":"a\xff","start_ns":1,"tid":1}',  # not UTF-8
        b'{"no":"kind"}',
        b'{"kind":"thread","tid":NaN,"name":"x"}',
    ]
    path.write_bytes(
        schema.encode_lines(LINES[:2]) + b"\n".join(bad) + b"\n" + schema.encode_lines(LINES[2:])
    )
    damage = []
    assert read(path, damage) == LINES
    assert [(one.kind, one.line, one.lost) for one in damage] == [("corrupt", n, 1) for n in range(3, 8)]
    assert "missing required field" in damage[0].reason


def test_line_behind_one_that_was_torn_in_the_middle_is_kept(tmp_path):
    path = tmp_path / "a.jsonl"
    first, second = schema.encode_lines(LINES[1:2]), schema.encode_lines(LINES[2:3])
    path.write_bytes(schema.encode_lines(LINES[:1]) + first[: len(first) // 2] + second)
    damage = []
    assert read(path, damage) == [LINES[0], LINES[2]]
    assert [(one.kind, one.line) for one in damage] == [("corrupt", 2)]


def test_many_bad_lines_are_counted_and_the_first_are_explained(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"bad\n" * 1000)
    damage = []
    assert read(path, damage) == []
    assert sum(one.lost for one in damage) == 1000
    assert len(damage) < 50


def test_unknown_kinds_and_fields_are_kept(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'{"kind":"weather","sun":true}\n{"kind":"mark","name":"m","start_ns":5,"tid":1,"colour":"red"}\n'
    )
    first, second = read_lines([Segment(path)], [])
    assert (first.kind, first.line.fields["sun"]) == ("weather", True)
    assert (second.kind, second.line.name, second.extra) == ("mark", "m", {"colour": "red"})


def test_newer_major_version_is_refused_by_name(tmp_path):
    path = tmp_path / "a.jsonl"
    fields = json.loads(schema.encode_lines(LINES[:1])) | {"version": "2.0"}
    path.write_text(json.dumps(fields) + "\n")
    with pytest.raises(LinesRefusedError, match=r"a\.jsonl: record version 2\.0 is newer than 1\.0"):
        read(path, [])


def test_newer_minor_version_is_read(tmp_path):
    path = tmp_path / "a.jsonl"
    fields = json.loads(schema.encode_lines(LINES[:1])) | {"version": "1.9", "mood": "good"}
    path.write_text(json.dumps(fields) + "\n")
    (item,) = read_lines([Segment(path)], [])
    assert (item.line.version, item.extra) == ("1.9", {"mood": "good"})


def test_segments_follow_each_other(tmp_path):
    first, second = tmp_path / "a.000.jsonl.gz", tmp_path / "a.jsonl"
    first.write_bytes(gzip.compress(schema.encode_lines(LINES[:3])))
    second.write_bytes(schema.encode_lines(LINES[3:]))
    assert [item.line for item in read_lines([Segment(first), Segment(second)], [])] == LINES


def test_what_is_appended_after_the_first_look_is_not_seen(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(CONTENT)
    size = len(schema.encode_lines(LINES[:4]))
    damage = []
    assert read(path, damage, size) == LINES[:4]
    assert damage == []


def test_file_that_is_not_there_is_an_error_with_its_name(tmp_path):
    with pytest.raises(ReadError, match=r"gone\.jsonl: No such file"):
        read(tmp_path / "gone.jsonl", [])
