"""Lets the nvtx package see Nsight Systems 2022.4, which is attached. For tests only."""

from __future__ import annotations


def show_the_tool(_role: str = "", _rank: int = 0) -> None:
    """Have the nvtx package hand out real domains in this process.

    Nsight Systems 2022.4 records ranges but leaves nvtxDomainIsEnabled unanswered; the nvtx package
    takes that for "no tool attached" and hands out a domain of no-ops.
    """
    from nvtx._lib import lib

    def domain_even_if_unasked(cls: type, name: str | None = None) -> object:
        domain = object.__new__(cls)
        domain.handle = lib.DomainHandle(name)
        return domain

    lib.Domain.__new__ = domain_even_if_unasked
