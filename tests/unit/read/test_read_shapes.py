"""Every way in which a trace may be laid out and packed gives the same events."""

from __future__ import annotations

import gzip
import io
import json
import random
import zipfile

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_text import make_events, read_fields, read_text

from slime_profiler_plugin.read import ReadError, TraceRefusedError, open_trace, read_header, read_pieces

EVENTS = make_events(5)
OBJECT = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS, "baseTimeNanoseconds": 7}).encode()


def pack_zip(members, method=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


SHAPES = {
    "object": OBJECT,
    "base before the events": json.dumps({"baseTimeNanoseconds": 7, "traceEvents": EVENTS}).encode(),
    "indented": json.dumps({"baseTimeNanoseconds": 7, "traceEvents": EVENTS}, indent=2).encode(),
    "indented by tabs": json.dumps({"baseTimeNanoseconds": 7, "traceEvents": EVENTS}, indent="\t").encode(),
    "byte order mark": b"\xef\xbb\xbf" + OBJECT,
    "space before and behind": b"\r\n\t " + OBJECT + b" \n\n",
    "trailing commas": OBJECT.replace(b"}]", b"},]").replace(b"7}", b"7,}"),
    "no commas between events": OBJECT.replace(b"}, {", b"}\n{"),
    "gzip": gzip.compress(OBJECT),
    "gzip of several members": gzip.compress(OBJECT[:100]) + gzip.compress(OBJECT[100:]),
    "gzip with padding": gzip.compress(OBJECT[:9]) + bytes(40) + gzip.compress(OBJECT[9:]) + bytes(999),
    "zip": pack_zip({"a.json": OBJECT}),
    "zip, stored": pack_zip({"a.json": OBJECT}, zipfile.ZIP_STORED),
    "zip with a folder and a note": pack_zip({"a/": b"", "a/t.json": OBJECT, "a/note.txt": b"x"}),
    "gzip in a zip": pack_zip({"a.json.gz": gzip.compress(OBJECT)}),
    "two lists": json.dumps({"traceEvents": EVENTS[:2], "baseTimeNanoseconds": 7})[:-1].encode()
    + b', "traceEvents": '
    + json.dumps(EVENTS[2:]).encode()
    + b"}",
}
ARRAYS = {
    "array": json.dumps(EVENTS),
    "array without its end": json.dumps(EVENTS)[:-1],
    "array with a trailing comma": json.dumps(EVENTS)[:-1] + ",\n",
    "array, one event to a line": "[\n" + ",\n".join(map(json.dumps, EVENTS)) + "\n]\n",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shape_gives_all_events_and_the_base(tmp_path, shape):
    # Recognised by its content: whatever the name says.
    path = tmp_path / "trace.json.gz"
    path.write_bytes(SHAPES[shape])
    assert read_fields(path) == (EVENTS, [])
    assert read_header(path).base_ns == 7


@pytest.mark.parametrize("shape", ARRAYS)
def test_bare_list_gives_all_events(tmp_path, shape):
    assert read_text(tmp_path, ARRAYS[shape]) == (EVENTS, [])


def test_archive_of_several_traces_is_refused_by_name(tmp_path):
    path = tmp_path / "t.zip"
    path.write_bytes(pack_zip({"a.json": OBJECT, "b.json": OBJECT}))
    with pytest.raises(TraceRefusedError, match=r"t\.zip: a zip archive of 2 files, not of one trace"):
        open_trace(path)
    path.write_bytes(pack_zip({}))
    with pytest.raises(TraceRefusedError, match="a zip archive of nothing"):
        open_trace(path)


def test_archive_that_was_cut_is_read_to_there(tmp_path):
    events = make_events(4000)
    random.Random(1).shuffle(events)
    packed = pack_zip({"a.json": json.dumps(events)})
    path = tmp_path / "t.zip"
    path.write_bytes(packed[: len(packed) // 2])
    found, damage = read_fields(path)
    assert 500 < len(found) < 4000
    assert found == events[: len(found)]
    assert {one.kind for one in damage} == {"truncated"}


def test_damaged_archive_says_so(tmp_path):
    packed = bytearray(pack_zip({"a.json": OBJECT}, zipfile.ZIP_STORED))
    packed[packed.index(b"op3")] = ord("x")
    found, damage = read_text(tmp_path, bytes(packed))
    assert [event["name"] for event in found] == ["op0", "op1", "op2", "xp3", "op4"]
    assert [(one.kind, "checksum" in one.reason) for one in damage] == [("corrupt", True)]


@pytest.mark.parametrize("count", [5, 20_000])
def test_a_wrong_checksum_is_told_and_costs_no_event(tmp_path, count):
    rng = random.Random(2)
    events = [{"ph": "X", "name": str(rng.random()), "ts": number} for number in range(count)]
    packed = bytearray(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    packed[-8] ^= 1
    found, damage = read_text(tmp_path, bytes(packed))
    assert [event["name"] for event in found] == [event["name"] for event in events]
    assert [(one.kind, "checksum" in one.reason) for one in damage] == [("corrupt", True)]


def test_content_that_unpacks_to_very_much_is_read_in_pieces(tmp_path):
    path = tmp_path / "t.json.gz"
    head, tail = json.dumps(EVENTS)[:-1].split(", ", 1)
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(head.encode())
        for _ in range(12):
            stream.write(b" " * (1 << 20))
        stream.write(f", {tail}]".encode())
    assert path.stat().st_size < 200_000
    assert read_fields(path) == (EVENTS, [])


def test_progress_is_told_in_bytes_of_the_file(tmp_path):
    rng = random.Random(1)
    events = [{"ph": "X", "name": str(rng.random()), "ts": number} for number in range(30_000)]
    for pack in (gzip.compress, bytes):
        path = tmp_path / "t.json"
        path.write_bytes(pack(json.dumps(events).encode()))
        told: list[int] = []
        count = sum(map(len, read_pieces(open_trace(path), [], told.append)))
        assert count == len(events)
        assert sum(told) == path.stat().st_size
        assert all(step > 0 for step in told)
        assert len(told) > 1


SPACES = ("", " ", "\n", "\n  ", "\t", "\r\n", "  \n ")
KEYS = ("ph", "name", "cat", "pid", "tid", "ts", "dur", "id", "args", "cname", "s")
TEXTS = ("", "X", 'a "q"', "},\n  {", "ä€😀", "back\\slash", "\x01\n", '"traceEvents": [{')
SCALARS = (None, True, False, 0, -1, 2**53 + 1, -(2**63), 2**70, 0.5, 3.0, 1e300)


def make_value(rng, depth=0):
    """Any JSON value."""
    kind = rng.randrange(4 if depth < 3 else 2)
    if kind == 0:
        return rng.choice(SCALARS)
    if kind == 1:
        return rng.choice(TEXTS)
    if kind == 2:
        return [make_value(rng, depth + 1) for _ in range(rng.randrange(3))]
    return {rng.choice((*TEXTS, *KEYS)): make_value(rng, depth + 1) for _ in range(rng.randrange(3))}


def make_any_events(rng):
    return [
        {key: make_value(rng) for key in rng.sample(KEYS, rng.randrange(len(KEYS)))}
        for _ in range(rng.randrange(6))
    ]


def lay_out(rng, value):
    """`value` as JSON with white space anywhere and the keys of objects in any order."""
    space = rng.choice(SPACES)
    comma = f"{space},{rng.choice(SPACES)}"
    if isinstance(value, dict):
        items = rng.sample(list(value.items()), len(value))
        parts = [f"{json.dumps(key)}{space}:{space}{lay_out(rng, inner)}" for key, inner in items]
        return "{" + space + comma.join(parts) + space + "}"
    if isinstance(value, list):
        return "[" + space + comma.join(lay_out(rng, inner) for inner in value) + space + "]"
    return json.dumps(value, ensure_ascii=rng.random() < 0.5)


def told(event):
    """What an event says once ids of odd types are text; compared as JSON, for 1 is not true."""
    fields = dict(event)
    for key in ("pid", "tid", "id"):
        value = fields.get(key)
        if isinstance(value, (list, dict)):
            fields[key] = plain(value)
        elif isinstance(value, bool):
            fields[key] = msgspec.json.encode(value).decode()
        elif isinstance(value, float):
            fields[key] = int(value) if value.is_integer() else msgspec.json.encode(value).decode()
    if fields.get("id", 0) is None:
        del fields["id"]
    if fields.get("ph") == "":
        del fields["ph"]
    return fields


def plain(value):
    """Compared as text, for 1 is not true; ids of odd types keep the order of their keys in the file."""
    if isinstance(value, dict):
        value = {
            key: _sorted(inner) if key in ("pid", "tid", "id") else inner for key, inner in value.items()
        }
    return json.dumps(value, sort_keys=True)


def _sorted(value):
    return plain(json.loads(value)) if isinstance(value, str) and value[:1] in ("[", "{") else value


@given(st.integers(0, 2**32))
def test_any_layout_gives_what_a_json_parser_gives(tmp_path_factory, seed):
    rng = random.Random(seed)
    events = make_any_events(rng)
    metadata = {rng.choice((*TEXTS, *KEYS)): make_value(rng) for _ in range(rng.randrange(4))}
    text = lay_out(rng, {**metadata, "traceEvents": events})
    folder = tmp_path_factory.getbasetemp()
    found, damage = read_text(folder, text)
    assert damage == []
    assert list(map(plain, found)) == [plain(told(event)) for event in events]
    assert plain(read_header(folder / "trace.json").metadata) == plain(metadata)


@given(st.integers(0, 2**32))
def test_any_layout_cut_anywhere_gives_the_events_before(tmp_path_factory, seed):
    rng = random.Random(seed)
    events = make_events(rng.randint(1, 6))
    for event in events:
        event["args"] = make_value(rng)
    texts = [lay_out(rng, event) for event in events]
    text = "[" + "".join(f"{one},{rng.choice(SPACES)}" for one in texts)
    cut = rng.randint(0, len(text))
    at, whole = 1, 0
    for one in texts:
        at = text.index(one, at) + len(one)
        whole += at <= cut
    try:
        found, _ = read_text(tmp_path_factory.getbasetemp(), text[:cut])
    except ReadError:
        found = []
    assert list(map(plain, found)) == [plain(event) for event in events[:whole]]
