"""Weight syncs: what every one of them does, and the four ways in which the weights travel."""

from ._disk import read_shards, reload_engines
from ._disk_delta import read_delta
from ._files import WeightsError, list_files, remove_old_versions, version_folder
from ._ipc import open_handle, release_shared
from ._nccl import receive_tensors
from ._protocol import EngineCalls, Lock, SyncReport
from ._weight_sync import WeightSync

__all__ = [
    "EngineCalls",
    "Lock",
    "SyncReport",
    "WeightSync",
    "WeightsError",
    "list_files",
    "open_handle",
    "read_delta",
    "read_shards",
    "receive_tensors",
    "release_shared",
    "reload_engines",
    "remove_old_versions",
    "version_folder",
]
