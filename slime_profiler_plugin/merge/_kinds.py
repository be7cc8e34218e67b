"""Arrays of numbers about events, and the kinds of events."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Kinds = npt.NDArray[np.uint8]
#: What numbers of tracks, lanes and rows fit; half of `Ints`, which it is used as.
SHORT: Any = np.int32

#: Kinds of events.
NO_PHASE, SLICE, BEGIN, END, FLOW_START, FLOW_STEP, FLOW_END = range(7)
#: Asynchronous ones, of the new form and the old; begins and steps are shown, ends show by them.
ASYNC, SHOWN_ASYNC, OLD_ASYNC, SHOWN_OLD_ASYNC = range(7, 11)
METADATA, COUNTER, INSTANT, OTHER = range(11, 15)


class _KindOf(dict[str, int]):
    """The kind of event that a phase letter means; of several letters the first counts, as for Perfetto.

    `met_several` is set when there were several.
    """

    met_several = False

    def __missing__(self, letters: str) -> int:
        if not letters:
            return NO_PHASE
        self.met_several |= len(letters) > 1
        return self.get(letters[0], OTHER)


#: By phase letter.
KIND_OF: Final = _KindOf(
    {
        "X": SLICE,
        "B": BEGIN,
        "E": END,
        "s": FLOW_START,
        "t": FLOW_STEP,
        "f": FLOW_END,
        "M": METADATA,
        "C": COUNTER,
        **dict.fromkeys("iIR", INSTANT),
        **dict.fromkeys("eNOD", ASYNC),
        **dict.fromkeys("bn", SHOWN_ASYNC),
        "F": OLD_ASYNC,
        **dict.fromkeys("STp", SHOWN_OLD_ASYNC),
    }
)
