"""Reading what the recorder wrote: record files, torch.profiler windows, whole runs."""

from ._files import Damage, ReadError, VanishedError, read_blocks
from ._index import DESCRIPTIONS, Block, RolloutKey, impossible_time, rollout_key
from ._process import ProcessRecords
from .folders import FolderOfRunsError, check_run_folder, find_runs, is_run_folder, read_run
from .kineto import TimedEvent, TraceEvent, TraceHeader, TraceRefusedError, read_events, read_header
from .records import LinesRefusedError, RecordLine, Segment, read_lines
from .run import RoleRanks, Run, TraceWindow

__all__ = [
    "DESCRIPTIONS",
    "Block",
    "Damage",
    "FolderOfRunsError",
    "LinesRefusedError",
    "ProcessRecords",
    "ReadError",
    "RecordLine",
    "RoleRanks",
    "RolloutKey",
    "Run",
    "Segment",
    "TimedEvent",
    "TraceEvent",
    "TraceHeader",
    "TraceRefusedError",
    "TraceWindow",
    "VanishedError",
    "check_run_folder",
    "find_runs",
    "impossible_time",
    "is_run_folder",
    "read_blocks",
    "read_events",
    "read_header",
    "read_lines",
    "read_run",
    "rollout_key",
]
