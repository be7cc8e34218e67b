"""Which run, which attempt, and which process of it this is. Imports no framework."""

from ._attempt import AttemptFile, RunFile, read_attempt, read_run
from ._errors import IdentityError, OutError
from ._place import Place, change_place
from ._process import ProcessIdentity, resolve
from ._surroundings import (
    LAUNCH_VARIABLE,
    RANK_VARIABLE,
    ROLE_VARIABLE,
    RUN_ID_VARIABLE,
    WORLD_SIZE_VARIABLE,
    Surroundings,
)

__all__ = [
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
    "read_attempt",
    "read_run",
    "resolve",
]
