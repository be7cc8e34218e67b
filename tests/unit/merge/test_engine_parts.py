"""Outputs made of parts: one gzip member that everything reads."""

import gzip
import io
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import igzip

from slime_profiler_plugin.merge._part import (
    GZIP_HEADER,
    PartWriter,
    end_stream,
    gzip_trailer,
    join_checksums,
)
from slime_profiler_plugin.merge._writer import TraceWriter


@given(st.lists(st.binary(max_size=200), max_size=6))
def test_checksums_join_to_that_of_the_whole(texts):
    whole = b"".join(texts)
    joined = 0
    for text in texts:
        joined = join_checksums(joined, zlib.crc32(text), len(text))
    assert joined == zlib.crc32(whole)


@pytest.mark.parametrize("size", [0, 1, 2**20, 2**20 + 3])
def test_checksum_of_a_large_second_text(size):
    first, second = b"head", b"\xa5" * size
    assert join_checksums(zlib.crc32(first), zlib.crc32(second), size) == zlib.crc32(first + second)


def one_member(raw):
    """The content, read as a single member with nothing behind it."""
    engine = zlib.decompressobj(wbits=31)
    text = engine.decompress(raw) + engine.flush()
    assert engine.eof
    assert engine.unused_data == b""
    return text


@given(st.lists(st.lists(st.binary(max_size=50), max_size=4), max_size=5))
def test_parts_make_one_member_that_everything_reads(parts):
    target, written = io.BytesIO(), []
    target.write(GZIP_HEADER)
    for part in parts:
        writer = PartWriter(target, compress=True)
        for text in part:
            writer.write(text.replace(b"\\", b""))
        written.append(writer.finish())
    target.write(end_stream() + gzip_trailer(written))
    raw = target.getvalue()
    whole = b"".join(text.replace(b"\\", b"") for part in parts for text in part)
    assert one_member(raw) == whole == gzip.decompress(raw) == igzip.decompress(raw)
    assert raw[-8:-4] == zlib.crc32(whole).to_bytes(4, "little")
    assert raw[-4:] == len(whole).to_bytes(4, "little")


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
@pytest.mark.parametrize("counts", [[], [0], [3], [0, 2, 0, 0, 70_000, 1]])
def test_file_made_of_own_text_and_of_parts(tmp_path, name, counts):
    path = tmp_path / name
    with TraceWriter(path, {"head": 1}) as writer:
        writer.write([b'{"own":1}'])
        for number, count in enumerate(counts):
            piece = tmp_path / f"{number}.part"
            with piece.open("wb") as file:
                part = PartWriter(file, compress=writer.is_compressed)
                for event in range(count):
                    part.write(b',\n{"n":%d}' % event)
                done = part.finish()
            writer.append(done, piece)
            assert not piece.exists()
            writer.write([b'{"between":%d}' % number])
        writer.finish({"tail": 2})
        size = writer.size
    raw = path.read_bytes()
    text = one_member(raw) if name.endswith(".gz") else raw
    assert len(text) == size
    events = [{"own": 1}]
    for number, count in enumerate(counts):
        events += [{"n": n} for n in range(count)]
        events.append({"between": number})
    assert json.loads(text) == {"head": 1, "traceEvents": events, "tail": 2}
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("head", [{}, {"a": 1}])
@pytest.mark.parametrize("tail", [{}, {"z": 1}])
def test_a_file_without_other_keys_is_strict_json_too(tmp_path, head, tail):
    with TraceWriter(tmp_path / "a.json", head) as writer:
        writer.finish(tail)
    assert json.loads((tmp_path / "a.json").read_text()) == {**head, "traceEvents": [], **tail}
