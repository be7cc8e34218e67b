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


#: By phase letter.
_KIND_OF: Final = {
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
#: The same by the letter's code.
_BY_CODE: Final = bytes(_KIND_OF.get(chr(code), OTHER) for code in range(256))


def kinds_of(phases: list[str]) -> Kinds:
    """The kinds of events with those phase letters; of several letters the first counts, as for Perfetto.

    >>> kinds_of(["X", "", "sX", "?"]).tolist() == [SLICE, NO_PHASE, FLOW_START, OTHER]
    True
    """
    if set(map(len, phases)) == {1}:
        letters = "".join(phases)
        if letters.isascii():
            return np.frombuffer(letters.encode("ascii").translate(_BY_CODE), np.uint8)
    return np.array([_KIND_OF.get(phase[0], OTHER) if phase else NO_PHASE for phase in phases], np.uint8)
