"""Loaded by Python at the start of every process that has this folder first on ``PYTHONPATH``.

Ahead of everything else in the process, also of most failures: nothing here may raise, print, or take time.
Off, it reads two environment variables and the arguments, and the one hook that it leaves waits for slime's
arguments to be parsed. On, it hands over to `slime_profiler_plugin.attach`.
"""

import os
import sys

_FLAG = "--communication-timeline"
_SWITCH, _TIMELINE = "SLIME_PROFILER", "SLIME_COMMUNICATION_TIMELINE"
#: The words of `config` for off.
_OFF = ("off", "0", "false", "no", "none")
_ARGUMENTS = "slime.utils.arguments"


def _run_the_other() -> None:
    """The sitecustomize that Python would have taken otherwise; what it raises is Python's to tell."""
    # importlib's own halves, which are loaded: importlib.util would take longer than all the rest.
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path) != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _is_on() -> bool:
    arguments = getattr(sys, "argv", [])
    if _FLAG in arguments:
        arguments[:] = [argument for argument in arguments if argument != _FLAG]
        os.environ.setdefault(_TIMELINE, "1")
    switch = os.environ.get(_SWITCH, "").strip()
    if switch:
        return switch.lower() not in _OFF
    return os.environ.get(_TIMELINE, "") not in ("", "0")


class _WaitsForArguments:
    """Finder that finds nothing itself: it notices slime's arguments being imported, and goes."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        finders: list[object] = sys.meta_path  # type: ignore[assignment]
        if name != _ARGUMENTS or self not in finders:
            return None
        finders.remove(self)
        try:
            from slime_profiler_plugin.attach import wait_for_slime_arguments

            wait_for_slime_arguments()
        except Exception:  # noqa: BLE001 - not even this may become the program's failure
            pass
        # Python goes through a list that has just changed, and would pass over the one behind us.
        for finder in list(finders):
            find = getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                return spec
        return None


def _attach() -> None:
    if _is_on():
        from slime_profiler_plugin.attach import attach_all

        attach_all()
    elif os.environ.get(_SWITCH, "").strip().lower() not in _OFF:
        sys.meta_path.insert(0, _WaitsForArguments())  # type: ignore[arg-type]


try:
    _run_the_other()
finally:
    try:  # noqa: SIM105 - contextlib is not loaded yet in every process
        _attach()
    except Exception:  # noqa: BLE001 - the package is not here, or broken: the program goes on
        pass
