"""Files that appear whole, once, whoever is first; on network file systems too."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Final

from ._errors import IdentityError

#: link(2) where the file system has no hard links.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_PATIENCE_S: Final = 5.0
_PAUSE_S: Final = 0.01


def create_whole(path: Path, content: bytes, unique: str) -> bool:
    """Create `path` with all of `content`, unless it exists. Returns whether we created it.

    `unique` tells this caller's temporary file from everyone else's. The content is linked
    into place, so nobody sees a part of it; only on a file system without hard links is it
    written under its final name, and `read_whole` waits for such a writer. Raises `OSError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return False
    temporary = path.with_name(f".{path.name}.{unique}.tmp")
    try:
        _write(temporary, content)
        try:
            os.link(temporary, path)
        except FileExistsError:
            # An NFS server's answer to a link that it did make can get lost and be asked for
            # again; the second answer then says that the file exists. The count does not lie.
            return temporary.stat().st_nlink > 1
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return _create_in_place(path, content)
        return True
    finally:
        temporary.unlink(missing_ok=True)


def read_whole(path: Path) -> bytes:
    """The content of a file made by `create_whole`, known to exist.

    Another host may see it a moment late, and where there are no hard links it may still
    be in writing: both are waited for, at most 5 s. Raises `IdentityError` after that.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            content = b""
        if content.endswith(b"\n"):
            return content
        if time.monotonic() > deadline:
            raise IdentityError(f"{path} exists and is not whole: its writer died, or it was edited")
        time.sleep(_PAUSE_S)


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _create_in_place(path: Path, content: bytes) -> bool:
    try:
        _write(path, content)
    except FileExistsError:
        return False
    return True
