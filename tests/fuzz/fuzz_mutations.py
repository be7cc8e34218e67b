"""Ways to damage a file: of its text, and of its bytes as they lie on disk."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import zipfile
from collections.abc import Callable

#: Files are at most this large, whatever they become when they are decompressed.
LARGEST = 100_000
_ODD_NUMBERS = (
    b"NaN", b"-NaN", b"Infinity", b"-Infinity", b"1e400", b"-1e400", b"18446744073709551616", b"9" * 400,
    b"0." + b"1" * 300, b"-0", b"-1", b"1e-400", b"0x10", b"1.", b"01", b"+1", b"9007199254740993.0625",
    b"9223372036854775807", b"1E15", b"5109774773078.3085",
)  # fmt: skip
_ODD_VALUES = (b"null", b"true", b"{}", b"[]", b'""', b'"12"', b'"\\ud800"', b'{"a":[{}]}', b"[[[]]]", b"-")
_ODD_BYTES = (
    b"\xff",
    b"\xe9\xff",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"\x00",
    b"\x01",
    b"\n",
    b"\x7f",
    b"\xf4\x90\x80\x80",
)
_ODD_TEXT = (
    b"\\ud800",
    b"\\udc00\\ud800",
    b"\\u12",
    b"\\x41",
    b"\\",
    b'"',
    b"\\u0000",
    b"\xef\xbb\xbf",
    b"\\\\",
)
_NUMBER = re.compile(rb"(?<=[:\s\[,])-?\d+(?:\.\d+)?(?=[\s,}\]])")
_VALUE = re.compile(rb'(?<=: )(?:"[^"]*"|-?\d+(?:\.\d+)?)')
_ARGS = re.compile(rb'"args":\s*\{[^{}]*\}')
_KEYS = ("ph", "name", "pid", "tid", "ts", "dur", "id", "cat", "args", "traceEvents", "baseTimeNanoseconds")

Damage = Callable[[random.Random, bytes, bytes], bytes]


def _place(chance: random.Random, text: bytes) -> int:
    return chance.randrange(len(text) + 1)


def flip_bits(chance: random.Random, text: bytes, _: bytes) -> bytes:
    damaged = bytearray(text)
    for _ in range(chance.choice((1, 1, 2, 8))):
        if damaged:
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def set_bytes(chance: random.Random, text: bytes, _: bytes) -> bytes:
    damaged = bytearray(text)
    for _ in range(chance.choice((1, 2, 20))):
        if damaged:
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    return bytes(damaged)


def cut(chance: random.Random, text: bytes, _: bytes) -> bytes:
    return text[: _place(chance, text)]


def cut_front(chance: random.Random, text: bytes, _: bytes) -> bytes:
    return text[_place(chance, text) :]


def remove(chance: random.Random, text: bytes, _: bytes) -> bytes:
    at = _place(chance, text)
    return text[:at] + text[at + chance.choice((1, 3, 50, 2000)) :]


def splice(chance: random.Random, text: bytes, other: bytes) -> bytes:
    return text[: _place(chance, text)] + other[_place(chance, other) :]


def insert_other(chance: random.Random, text: bytes, other: bytes) -> bytes:
    at, start = _place(chance, text), _place(chance, other)
    return text[:at] + other[start : start + chance.randrange(2000)] + text[at:]


def repeat(chance: random.Random, text: bytes, _: bytes) -> bytes:
    at = _place(chance, text)
    block = text[at : at + chance.choice((1, 20, 500, 5000))]
    return text[:at] + block * chance.choice((2, 5, 40)) + text[at:]


def odd_number(chance: random.Random, text: bytes, _: bytes) -> bytes:
    return _substitute(chance, text, _NUMBER, _ODD_NUMBERS)


def odd_value(chance: random.Random, text: bytes, _: bytes) -> bytes:
    return _substitute(chance, text, _VALUE, _ODD_VALUES)


def odd_bytes(chance: random.Random, text: bytes, _: bytes) -> bytes:
    at = _place(chance, text)
    return text[:at] + chance.choice(_ODD_BYTES + _ODD_TEXT) + text[at:]


def key_twice(chance: random.Random, text: bytes, _: bytes) -> bytes:
    places = [match.end() for match in re.finditer(rb"\{", text)]
    if not places:
        return text
    at = chance.choice(places)
    key = chance.choice(_KEYS).encode()
    return text[:at] + b'"' + key + b'": ' + chance.choice((*_ODD_VALUES, b"5", b"[")) + b", " + text[at:]


def nest(chance: random.Random, text: bytes, _: bytes) -> bytes:
    """Brackets in brackets, in the place of a value; now and then without their ends."""
    depth = chance.choice((10, 500, 1100, 20_000))
    begin, end = chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
    inner = begin * depth + b"1" + (end * depth if chance.random() < 0.7 else b"")
    return _substitute(chance, text, _VALUE, (inner[:60_000],))


def long_string(chance: random.Random, text: bytes, _: bytes) -> bytes:
    fill = chance.choice((b"x", b"\\u00e9", "é".encode(), b'\\"', b"},\n  {", b"},{"))
    return _substitute(
        chance, text, _VALUE, (b'"' + (fill * 50_000)[: chance.choice((3000, 50_001))] + b'"',)
    )


def shuffle_keys(chance: random.Random, text: bytes, _: bytes) -> bytes:
    """No damage: the same content in another order and with other space."""
    try:
        shuffled = _shuffled(chance, json.loads(text))
    except (ValueError, RecursionError):
        return text
    space = chance.choice(((",", ":"), (", ", ": "), (" ,\n", " : ")))
    return json.dumps(shuffled, indent=chance.choice((None, None, 1)), separators=space).encode()


def odd_args(chance: random.Random, text: bytes, _: bytes) -> bytes:
    """Args that are no object, in the place of some that are."""
    return _substitute(chance, text, _ARGS, tuple(b'"args": ' + value for value in _ODD_VALUES))


def white_space(chance: random.Random, text: bytes, _: bytes) -> bytes:
    """Space between two values: a little, or as much as the file may have."""
    places = [match.end() for match in re.finditer(rb"[,:\[{]", text)]
    if not places:
        return text
    at = chance.choice(places)
    return text[:at] + chance.choice((b" ", b"\n", b"\t\r\n")) * chance.choice((3, 3000, 60_000)) + text[at:]


def as_it_is(_: random.Random, text: bytes, __: bytes) -> bytes:
    return text


def _shuffled(chance: random.Random, value: object) -> object:
    if isinstance(value, dict):
        keys = list(value)
        chance.shuffle(keys)
        return {key: _shuffled(chance, value[key]) for key in keys}
    if isinstance(value, list):
        return [_shuffled(chance, inner) for inner in value]
    return value


def _substitute(
    chance: random.Random, text: bytes, pattern: re.Pattern[bytes], by: tuple[bytes, ...]
) -> bytes:
    places = list(pattern.finditer(text))
    if not places:
        return text
    place = chance.choice(places)
    return text[: place.start()] + chance.choice(by) + text[place.end() :]


_BOMBS = (
    "space", "brackets", "string", "digits", "events", "header", "lines", "space_inside", "space_in_front",
    "space_behind",
)  # fmt: skip


def bomb(chance: random.Random, text: bytes, _: bytes) -> bytes:
    """A file of a few kilobytes that becomes tens of megabytes."""
    place = text.find(b"[") + 1
    head, tail = text[:place], text[place:]
    size = chance.choice((5_000_000, 20_000_000, 80_000_000))
    event = b'{"ph":"X","name":"bomb","pid":1,"tid":1,"ts":1,"dur":1},\n'
    content = {
        "space": head + b" " * size + tail,
        "brackets": head + b"[" * size,
        "string": head + b'{"ph":"X","name":"' + b"a" * size + b'","pid":1,"tid":1,"ts":1,"dur":1},' + tail,
        "digits": head
        + b'{"ph":"X","name":"n","pid":1,"tid":1,"dur":1,"ts":'
        + b"1" * (size // 10)
        + b"},"
        + tail,
        "events": head + event * (size // 10 // len(event)) + tail,
        "header": b'{"a":"' + b"h" * size + b'",' + text[1:],
        "lines": head + b"\n},\n{" * (size // 200) + tail,
        "space_inside": head + event[:-3] + b"\t\n" * (size // 2) + event[-3:] + tail,
        "space_in_front": b"\r\n" * (size // 2) + text,
        "space_behind": text + b" " * size,
    }[chance.choice(_BOMBS)]
    if chance.random() < 0.3:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo("trace.json"), content, zipfile.ZIP_DEFLATED)
        return stream.getvalue()
    packed = gzip.compress(content, 9, mtime=0)
    return gzip.compress(packed, 9, mtime=0) if chance.random() < 0.2 else packed


def garbage_behind(chance: random.Random, data: bytes, other: bytes) -> bytes:
    return data + chance.choice((b"\0" * 512, b"garbage", other[:300], data, b"\x1f\x8b\x08"))


#: Of the text: what is read before the first change must come out.
OF_TEXT: tuple[Damage, ...] = (
    flip_bits, set_bytes, cut, cut_front, remove, splice, insert_other, repeat, odd_number, odd_value,
    odd_bytes, key_twice, nest, long_string, odd_args, white_space, shuffle_keys,
)  # fmt: skip
#: Of the bytes on disk.
OF_BYTES: tuple[Damage, ...] = (flip_bits, set_bytes, cut, remove, splice, repeat, garbage_behind, as_it_is)
