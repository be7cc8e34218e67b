"""Run folders made up for tests: of this project, and of whoever reads its files."""

from ._process_file import ProcessFile
from ._synthetic import MS, SyntheticRun, write_synthetic_run
from ._trace_file import write_trace_window

__all__ = ["MS", "ProcessFile", "SyntheticRun", "write_synthetic_run", "write_trace_window"]
