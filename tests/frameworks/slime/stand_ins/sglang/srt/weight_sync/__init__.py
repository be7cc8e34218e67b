"""The modules of the installed SGLang."""

from sglang import installed

__path__ = [installed("srt", "weight_sync")]
