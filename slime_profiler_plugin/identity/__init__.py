"""Which run, which attempt, and which process of it this is. Imports no framework."""

from ._attempt import AttemptFile, RunFile, read_attempt, read_run
from ._errors import IdentityError, OutError
from ._files import create_whole
from ._place import Place, change_place
from ._process import ProcessIdentity, resolve
from ._run import mint_run_id
from ._surroundings import (
    LAUNCH_VARIABLE,
    LAUNCHED_VARIABLE,
    RANK_VARIABLE,
    ROLE_VARIABLE,
    RUN_ID_VARIABLE,
    WORLD_SIZE_VARIABLE,
    Surroundings,
)

__all__ = [
    "LAUNCHED_VARIABLE",
    "LAUNCH_VARIABLE",
    "RANK_VARIABLE",
    "ROLE_VARIABLE",
    "RUN_ID_VARIABLE",
    "WORLD_SIZE_VARIABLE",
    "AttemptFile",
    "IdentityError",
    "OutError",
    "Place",
    "ProcessIdentity",
    "RunFile",
    "Surroundings",
    "change_place",
    "create_whole",
    "mint_run_id",
    "read_attempt",
    "read_run",
    "resolve",
]
