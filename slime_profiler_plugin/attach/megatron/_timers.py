"""What takes the place of ``config.timers``: Megatron's own instrumentation, as phases."""

from __future__ import annotations

import copy
import operator
from typing import Any, Final

from slime_profiler_plugin.attach._open_phases import PHASES

from ._names import TIMERS, TimerName


class Timers:
    """``timers(name, log_level=None)`` gives a timer: ``start(barrier=False)``, ``stop(barrier=False)``.

    Each start and stop of a known name up to `log_level` is a phase. `barrier` is ignored:
    Megatron asks for one of all ranks at each timer of level 1, unless told otherwise, and
    nothing here may wait. `inner`, the program's own timers, gets every call as it was made,
    and answers what this class does not know; only there a barrier is one, as it was before.
    Copied or pickled, it becomes `inner`.
    """

    def __init__(self, inner: Any = None, log_level: int = 2) -> None:
        self._inner: Final = inner
        self._log_level: Final = log_level
        self._known: Final[dict[str, Timer]] = {}

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> Timer:
        """The timer of that name."""
        if self._inner is not None:
            return Timer(name, self._phase_of(name), self._inner(name, *args, **kwargs))
        timer = self._known.get(name)
        if timer is None:
            timer = self._known[name] = Timer(name, self._phase_of(name), None)
        return timer

    def _phase_of(self, name: str) -> TimerName | None:
        known = TIMERS.get(name)
        return known if known is not None and known.level <= self._log_level else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by copy and pickle, before there is anything
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __reduce__(self) -> Any:
        return operator.itemgetter(0), ((self._inner,),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Timers:
        return type(self)(copy.deepcopy(self._inner, memo), self._log_level)


class Timer:
    """One timer. Megatron keeps none: it asks for it by name at each start and stop."""

    __slots__ = ("_fields", "_inner", "_name", "_phase")

    def __init__(self, name: str, known: TimerName | None, inner: Any) -> None:
        self._name = name
        self._phase = None if known is None else known.phase
        self._fields = {"timer": name} if known is not None and known.named else {}
        self._inner = inner

    def start(self, barrier: bool = False) -> None:
        """Begin the phase."""
        if self._inner is not None:
            self._inner.start(barrier=barrier)
        if self._phase is not None:
            PHASES.begin(self._name, self._phase, self._fields)

    def stop(self, barrier: bool = False) -> None:
        """End the phase."""
        if self._phase is not None:
            PHASES.end(self._name)
        if self._inner is not None:
            self._inner.stop(barrier=barrier)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Finalize:
    """``config.finalize_model_grads_func``, whose call is the phase ``finalize_grads``.

    Copied or pickled, it becomes the function itself.
    """

    def __init__(self, inner: Any) -> None:
        self.__wrapped__: Final = inner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns."""
        return PHASES.around("finalize_grads", lambda: self.__wrapped__(*args, **kwargs), {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by copy and pickle, before there is anything
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __reduce__(self) -> Any:
        return operator.itemgetter(0), ((self.__wrapped__,),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Finalize:
        return type(self)(copy.deepcopy(self.__wrapped__, memo))
