"""Files of ``torch.save``: what one begins with, read without unpickling anything.

Such a file is a ZIP that nothing is packed in: a pickle, ``NAME/data.pkl``, and beside it the numbers of the
tensors. A checkpoint has gigabytes of them, of which nothing is read here.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Final, NamedTuple

from ._damage import ReadError, TraceRefusedError
from ._nsys_database import first_bytes
from ._unpack import ZIP_MAGIC

_PICKLE: Final = "/data.pkl"
#: A ZIP begins with the header of its first member; these are the length of that one's name, and the name.
_NAME_LENGTH_AT, _NAME_AT = slice(26, 28), 30
_LONGEST_NAME: Final = 1 << 12
#: The dictionary that slime saves, up to its second key; texts and memo marks of any protocol of pickles.
_MEMO: Final = rb"(?:q.|r.{4}|\x94)?"
_DUMP: Final = re.compile(
    rb"\x80[\x02-\x05](?:\x95.{8})?\}" + _MEMO + rb"\((?:X\x0a\0\0\0|\x8c\x0a)rollout_id" + _MEMO + rb"(?:"
    rb"K(?P<one>.)|M(?P<two>..)|J(?P<four>.{4})|(?P<other>.{1,64}?))"
    + _MEMO
    + rb"(?:X\x07\0\0\0|\x8c\x07)samples",
    re.DOTALL,
)
_HEAD: Final = 256


class DumpHead(NamedTuple):
    """The beginning of a dump of samples; `rollout` is ``None`` where it is no whole number."""

    rollout: int | None


def is_torch_file(path: Path) -> bool:
    """Whether ``torch.save`` wrote the file at `path`, by its first member's name: also when cut.

    Raises `ReadError` when it cannot be read.
    """
    head = first_bytes(path, _NAME_AT + _LONGEST_NAME)
    if not head.startswith(ZIP_MAGIC):
        return False
    length = int.from_bytes(head[_NAME_LENGTH_AT], "little")
    return head[_NAME_AT : _NAME_AT + length].endswith(_PICKLE.encode())


def read_dump_head(path: Path) -> DumpHead:
    """What the dump of samples at `path` begins with.

    Raises `TraceRefusedError` for any other file of ``torch.save`` (a checkpoint), and for one that was cut
    or is packed, which torch's own never is: what it unpacks to could be of any size.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            pickle = next(each for each in members if each.filename.endswith(_PICKLE))
            if any(each.compress_type != zipfile.ZIP_STORED for each in members):
                raise TraceRefusedError(f"{path}: a file of torch.save whose members are packed: not read")
            with archive.open(pickle) as stream:
                head = stream.read(_HEAD)
    except OSError as error:
        raise ReadError(f"{path}: {error.strerror or error}") from error
    except (
        zipfile.BadZipFile,
        StopIteration,
        RuntimeError,
        NotImplementedError,
        ValueError,
        EOFError,
    ) as error:
        raise TraceRefusedError(
            f"{path}: a file of torch.save that is truncated or corrupt: {error or 'it has no pickle'}"
        ) from error
    match = _DUMP.match(head)
    if match is None:
        raise TraceRefusedError(f"{path}: a file of torch.save (a checkpoint?), no samples that slime dumped")
    digits = match["one"] or match["two"]
    if digits is not None:
        return DumpHead(int.from_bytes(digits, "little"))
    return DumpHead(None if match["four"] is None else int.from_bytes(match["four"], "little", signed=True))
