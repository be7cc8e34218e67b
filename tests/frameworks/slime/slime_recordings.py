"""What the processes of a job recorded, and what its files say."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from recordings import Recording, read_file, record_files

#: Of safetensors' headers, in torch's words.
_TYPES = {"BF16": "torch.bfloat16", "F32": "torch.float32", "F16": "torch.float16"}
Place = tuple[str, int | None]


def recordings(out: Path) -> dict[Place, Recording]:
    """By role and rank; engines by their index."""
    found: dict[Place, Recording] = {}
    for path in record_files(out / "runs"):
        recording = Recording(read_file(path))
        roles = {line.role for line in recording.lines if getattr(line, "role", None)}
        (role,) = roles
        ranks = {line.rank for line in recording.lines if getattr(line, "rank", None) is not None}
        engines = [
            line.engine["index"]
            for line in recording.lines
            if getattr(line, "engine", None) and role == "engine"
        ]
        place = (role, engines[0] if role == "engine" else next(iter(ranks), None))
        assert len(ranks) <= 1, (path, ranks)
        assert place not in found, (path, place)
        found[place] = recording
    return found


def outline(recording: Recording, inside: Iterable[str] = ()) -> list[str]:
    """Names of phases as they began, each indented below its parent; with `inside`, of those phases only."""
    wanted, depths, lines = set(inside), dict[int, int](), list[str]()
    for phase in sorted(recording.phases, key=lambda phase: phase.id):
        if phase.parent in depths:
            depth = depths[phase.parent] + 1
        elif not wanted or phase.name in wanted:
            depth = 0
        else:
            continue
        depths[phase.id] = depth
        lines.append("  " * depth + phase.name)
    return lines


def repeated(lines: list[str]) -> list[str]:
    """`lines` with each repeated line or block written once, with how often.

    >>> repeated(["a", "b", " c", "b", " c", "d"])
    ['a', '2 x b', '2 x  c', 'd']
    """
    result: list[str] = []
    place = 0
    while place < len(lines):
        best = (1, 1)
        for length in range(1, min(12, (len(lines) - place) // 2 + 1)):
            block = lines[place : place + length]
            times = 1
            while lines[place + times * length : place + (times + 1) * length] == block:
                times += 1
            if times > 1 and times * length > best[0] * best[1]:
                best = (length, times)
        length, times = best
        mark = "" if times == 1 else f"{times} x "
        result += [mark + line for line in lines[place : place + length]]
        place += length * times
    return result


def tensors_of(folder: Path) -> dict[str, str]:
    """Of each tensor of a Hugging Face folder: its type, shape and a digest of its bytes."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        for name, about in json.loads(data[8 : 8 + length]).items():
            if name != "__metadata__":
                begin, end = (8 + length + offset for offset in about["data_offsets"])
                digest = hashlib.sha256(data[begin:end]).hexdigest()
                found[name] = f"{_TYPES[about['dtype']]}{about['shape']} {digest}"
    return found


def bytes_of(folder: Path) -> int:
    """Of all its tensors."""
    total = 0
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            about: dict[str, Any] = json.loads(file.read(length))
        total += sum(
            v["data_offsets"][1] - v["data_offsets"][0] for k, v in about.items() if k != "__metadata__"
        )
    return total
