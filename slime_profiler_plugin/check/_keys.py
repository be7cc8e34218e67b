"""Top-level keys that we write."""

from typing import Final

#: Of a mended file.
FIX_KEY: Final = "slime_profiler_fix"
