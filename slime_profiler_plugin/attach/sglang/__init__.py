"""Joins SGLang's engines: what they do with weights. Profiler windows of them are in `windows`.

SGLang imports this in all its processes, with the switch off too: it stays small.
"""

from ._place import INDEX_VARIABLE
from ._register import register
from ._targets import TARGETS

__all__ = ["INDEX_VARIABLE", "TARGETS", "register"]
