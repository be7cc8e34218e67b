"""Of the installed SGLang."""

import runpy

from sglang import installed

globals().update(runpy.run_path(installed("srt", "constants.py")))
