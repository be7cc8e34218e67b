"""Reading: what the recorder wrote, and traces of anyone's."""

from ._damage import Damage, ReadError, VanishedError
from ._entries import list_entries, list_sources, read_run_file
from ._files import read_blocks
from ._header import BASE_KEY
from ._index import DESCRIPTIONS, Block, RolloutKey, impossible_time, rollout_key
from ._owner import stem_of
from ._process import ProcessRecords, ProcessSeen
from ._recognise import FIX_KEY, MERGE_KEY
from ._words import INVENTED_PIDS, KERNEL_CATEGORIES, device_of_label, plain_id
from .discover import Discovery, discover
from .folders import (
    FolderOfRunsError,
    attempt_numbers,
    check_run_folder,
    find_runs,
    is_run_folder,
    read_run,
    read_run_id,
)
from .glance import Glance, glance_processes
from .kineto import TraceEvent, TraceHeader, TraceRefusedError, read_header
from .records import LinesRefusedError, RecordLine, Segment, read_lines
from .run import MOST_RANKS, RoleRanks, Run, TraceWindow, count_ranks
from .traces import Owner, TraceFile, open_trace, read_pieces

__all__ = [
    "BASE_KEY",
    "DESCRIPTIONS",
    "FIX_KEY",
    "INVENTED_PIDS",
    "KERNEL_CATEGORIES",
    "MERGE_KEY",
    "MOST_RANKS",
    "Block",
    "Damage",
    "Discovery",
    "FolderOfRunsError",
    "Glance",
    "LinesRefusedError",
    "Owner",
    "ProcessRecords",
    "ProcessSeen",
    "ReadError",
    "RecordLine",
    "RoleRanks",
    "RolloutKey",
    "Run",
    "Segment",
    "TraceEvent",
    "TraceFile",
    "TraceHeader",
    "TraceRefusedError",
    "TraceWindow",
    "VanishedError",
    "attempt_numbers",
    "check_run_folder",
    "count_ranks",
    "device_of_label",
    "discover",
    "find_runs",
    "glance_processes",
    "impossible_time",
    "is_run_folder",
    "list_entries",
    "list_sources",
    "open_trace",
    "plain_id",
    "read_blocks",
    "read_header",
    "read_lines",
    "read_pieces",
    "read_run",
    "read_run_file",
    "read_run_id",
    "rollout_key",
    "stem_of",
]
