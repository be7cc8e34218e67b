"""The little of SGLang that slime's own processes import, without the half minute that all of it takes.

What stands alone in the installed SGLang is taken from there, the rest is a stand-in of a few lines.
"""

import sys
from pathlib import Path

__path__: list[str]
_HERE = Path(__path__[0]).resolve()


def installed(*parts: str) -> str:
    """A file or folder of the SGLang that this environment has."""
    for entry in sys.path:
        folder = Path(entry, "sglang").resolve()
        if folder != _HERE and folder.joinpath(*parts).exists():
            return str(folder.joinpath(*parts))
    raise ImportError("no SGLang is installed", name="sglang")
