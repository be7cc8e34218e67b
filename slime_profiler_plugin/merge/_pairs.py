"""Which phases arrows lead between, and by what they join: rule 9."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class Pair(NamedTuple):
    """Arrows from every `send` to every `receive` of one sync of one sender of one attempt.

    `by_bucket`: and of one bucket, which both must name. `transport`: of this one only, which the receives
    must name, since phases of that name mean other things over others. `word` is what the arrows carry.
    """

    send: str
    receive: str
    word: str
    by_bucket: bool = False
    transport: str | None = None

    def __str__(self) -> str:
        return f"{self.send} to {self.receive}"

    def fits(self, args: Mapping[str, Any]) -> bool:
        """Whether a phase of one of the two names, with these args, can be an end of the pair's arrows."""
        return not (
            (self.by_bucket and args.get("bucket") is None)
            or (self.transport is not None and args.get("transport") not in (None, self.transport))
        )


PAIRS: Final = (
    Pair("bucket_send", "engine_receive", "bucket", by_bucket=True),
    Pair("shard_write", "engine_load", "shard", transport="disk"),
    Pair("delta_publish", "engine_pull", "delta"),
)
_ENDS: Final = {name: pair for pair in PAIRS for name in (pair.send, pair.receive)}


def find_pair(name: str, args: Mapping[str, Any]) -> Pair | None:
    """The pair that a phase may be an end of."""
    pair = _ENDS.get(name)
    return pair if pair is not None and pair.fits(args) else None
