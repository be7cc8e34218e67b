"""Switching on by slime's own arguments: the flag it ignores, and the key of its custom configuration."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from slime_profiler_plugin._switch import SWITCH_VARIABLE, may_record

from ._frameworks import attach_all
from ._hand_on import hand_on
from ._targets import Target
from ._wrap import Bound, wrap

#: slime sets each key of its ``--custom-config-path`` as an attribute.
KEY: Final = "communication_timeline"
PARSE: Final = Target(
    "slime", "slime.utils.arguments", "parse_args", None, ("the switch in slime's arguments",)
)


def wait_for_slime_arguments() -> None:
    """When slime has parsed its arguments: attach, if they or the environment say so, its workers too."""
    wrap(PARSE, _around_parse)


def _around_parse(call: Callable[[], Any], _bound: Bound) -> Any:
    arguments = call()
    said = getattr(arguments, KEY, None)
    if said and not os.environ.get(SWITCH_VARIABLE, "").strip():  # empty is not set, here as everywhere
        os.environ[SWITCH_VARIABLE] = said if isinstance(said, str) else "timeline"
    if may_record(os.environ):
        attach_all()
        hand_on(os.environ)
    return arguments
