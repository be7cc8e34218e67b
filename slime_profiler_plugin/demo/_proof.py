"""Whether a weight sync brought the trainers' weights to every engine."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ._cluster import DemoError
from ._probe import Probe
from .sync import SyncReport


class SyncProof(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared after a sync.

    `tensors` have equal checksums and `tokens` are equal in all `models`; in each engine some
    logit moved by `logit_change` or more. `reports` come from the ranks that sent something.
    """

    reports: list[SyncReport]
    models: int
    tensors: int
    tokens: int
    logit_change: float


def prove(
    reports: Sequence[SyncReport],
    model_bytes: int,
    before: Sequence[Probe],
    after: Sequence[Probe],
    trainers: Sequence[Probe],
) -> SyncProof:
    """Compare what all models say after a sync, and the engines with themselves `before` it.

    Raises `DemoError` where the sync cannot have brought the source's weights to every engine.
    """
    sync = reports[0].sync
    _compare_bytes(reports, model_bytes, len(after))
    wanted = trainers[0]
    for kind, probes in (("engine", after), ("trainer", trainers)):
        for index, probe in enumerate(probes):
            _compare(probe, wanted, f"after sync {sync} {kind} {index}")
    changes = [_largest_change(old, new) for old, new in zip(before, after, strict=True)]
    for index, change in enumerate(changes):
        if change == 0:
            raise DemoError(f"sync {sync} changed no logit of engine {index}")
    return SyncProof(
        reports=list(reports),
        models=len(after) + len(trainers),
        tensors=len(wanted.checksums),
        tokens=sum(map(len, wanted.tokens)),
        logit_change=min(changes),
    )


def _compare_bytes(reports: Sequence[SyncReport], model_bytes: int, engines: int) -> None:
    """Over ipc each report is of one engine and the whole model; else the reports share the model."""
    sent = [report.bytes for report in reports]
    whole = sent if reports[0].transport == "ipc" else [sum(sent)]
    wanted = engines if reports[0].transport == "ipc" else 1
    if whole != [model_bytes] * wanted:
        told = ", ".join(map(str, sent))
        raise DemoError(f"sync {reports[0].sync} sent {told} bytes of a model of {model_bytes}")


def _compare(probe: Probe, wanted: Probe, who: str) -> None:
    names = {*probe.checksums, *wanted.checksums}
    different = sorted(n for n in names if probe.checksums.get(n) != wanted.checksums.get(n))
    if different:
        raise DemoError(
            f"{who} has other weights than trainer 0 in {len(different)} tensors, {different[0]} first"
        )
    if probe.tokens != wanted.tokens:
        raise DemoError(f"{who} draws other tokens than trainer 0")


def _largest_change(old: Probe, new: Probe) -> float:
    rows = zip(old.logits, new.logits, strict=True)
    return max(abs(a - b) for row in rows for a, b in zip(*row, strict=True))
