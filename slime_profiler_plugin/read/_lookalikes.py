"""What a file is that is no trace, so that it is refused by name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ._chunks import TraceText
from ._events import TraceEvent
from ._members import EVENTS_KEY
from ._unpack import GZIP_MAGIC

_MAGICS: Final = (
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x80\x03", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x80\x05", "a Python pickle"),
    (b"\xff\xfe", "text in UTF-16, not UTF-8"),
    (b"\xfe\xff", "text in UTF-16, not UTF-8"),
    (b"\x7fELF", "a program"),
    (b"\xfd7zXZ\0", "packed with xz, which is not read"),
    (b"\x28\xb5\x2f\xfd", "packed with Zstandard, which is not read"),
    (b"\x04\x22\x4d\x18", "packed with LZ4, which is not read"),
    (b"BZh", "packed with bzip2, which is not read"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive, which is not read"),
    (GZIP_MAGIC, "packed twice with gzip: unpack it once"),
)
#: What a JSON object is that has all of these keys, the most telling first.
_OBJECTS: Final = (
    ({"rocprofiler-sdk-tool"}, "the JSON output of rocprofiler"),
    ({"resourceSpans"}, "an OpenTelemetry export"),
    ({"$schema", "profiles", "shared"}, "a speedscope profile"),
    ({"kind", "run_id"}, "a record file of slime-profiler"),
    ({"traces"}, "Google Cloud Trace JSON"),
    ({"spans"}, "Google Cloud Trace JSON"),
    ({"nodes", "samples"}, "a V8 CPU profile"),
    ({"nodes"}, "a graph of operators"),
)
NO_EVENTS: Final = "an empty list, as Ray writes for a run without tasks: no events"


def name_lookalike(text: TraceText, events: Collection[TraceEvent]) -> str:
    """What the file is of which `text` read the beginning, and found no list of trace events."""
    if not text.layout:
        return _name_other_text(text.first_bytes)
    if text.layout == "array":
        return _name_array(text, events)
    if text.members.other:
        return text.members.other
    if text.oversized:
        return "a value of more than 64 MB stands before its traceEvents list"
    if not text.closed:
        return "it ends before a traceEvents list begins"
    keys = set(text.metadata)
    if EVENTS_KEY in keys:
        return "its traceEvents is no list"
    if "schema" in keys and "chakra" in str(text.metadata["schema"]).lower():
        return "a Chakra execution graph"
    named = (what for needed, what in _OBJECTS if needed <= keys)
    return next(named, "JSON without a traceEvents list")


def _name_other_text(first: bytes) -> str:
    if not first.strip():
        return "an empty file: it ends before a traceEvents list begins"
    for magic, what in _MAGICS:
        if first.startswith(magic):
            return what
    begin = first.removeprefix(b"\xef\xbb\xbf").lstrip()
    if begin.startswith(b"<"):
        return "an HTML or XML page"
    return "neither JSON nor anything else that is known"


def _name_array(text: TraceText, events: Collection[TraceEvent]) -> str:
    if events:
        return "a JSON array of objects that are no trace events"
    if not text.walk.bad:
        return NO_EVENTS if text.walk.closed else "it ends before its first event does"
    begin = text.first_bytes.lstrip(b"\xef\xbb\xbf \t\r\n")[1:].lstrip()
    if begin.startswith(b"["):
        return "an array of arrays, as torch's memory timelines are"
    return "a JSON array that holds no events"
