"""Loaded by Python at the start of every process that has this folder first on ``PYTHONPATH``.

Ahead of everything else in the process, also of most failures: nothing here may raise, print, or take time.
Off, it reads two environment variables and the arguments, and the one hook that it leaves waits for slime's
arguments to be parsed. On, it hands over to `slime_profiler_plugin.attach`.
"""

import os
import sys

_FLAG = "--communication-timeline"
_SWITCH, _TIMELINE = "SLIME_PROFILER", "SLIME_COMMUNICATION_TIMELINE"
#: As in `slime_profiler_plugin._switch`, which is not imported while off.
_OFF = ("off", "0", "false", "no", "none")
#: What the other variable says where it does not switch on.
_UNSET = ("", "0")
_ARGUMENTS = "slime.utils.arguments"
#: While it is there, a list of the folders like ours whose file runs: another may chain back to us.
_RUNNING = "_slime_profiler_autoload"


def _run_the_other(here: str) -> None:
    """The sitecustomize that Python would have taken otherwise; what it raises is Python's to tell.

    Only folders behind ours are asked: whoever stands before has had its turn, or has none.
    """
    # importlib's own half, which is loaded: importlib.util would take longer than all the rest.
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    place = _place_of(here)
    behind = [path for path in sys.path[place + 1 :] if isinstance(path, str)]
    spec = PathFinder.find_spec("sitecustomize", behind)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _place_of(here: str) -> int:
    """Where our folder stands on ``sys.path``; -1 where it does not."""
    for place, path in enumerate(sys.path):
        if isinstance(path, str) and os.path.normpath(path) == here:
            return place
    return -1


def _drop_empty_entry(here: str) -> None:
    """Ray makes ``ours:`` of ``ours:${PYTHONPATH}`` where a node has none: that is the current folder, which
    nobody asked for.
    """
    path = os.environ.get("PYTHONPATH", "")
    if not path.endswith(here + os.pathsep):
        return
    os.environ["PYTHONPATH"] = path[: -len(os.pathsep)]
    behind = _place_of(here) + 1
    if sys.path[behind : behind + 1] in ([""], [os.getcwd()]):
        del sys.path[behind]


def _is_on() -> bool:
    arguments = getattr(sys, "argv", [])
    if _FLAG in arguments:
        arguments[:] = [argument for argument in arguments if argument != _FLAG]
        if os.environ.get(_TIMELINE, "") in _UNSET:
            os.environ[_TIMELINE] = "1"  # for the children too
    switch = os.environ.get(_SWITCH, "").strip()
    if switch:
        return switch.lower() not in _OFF
    return os.environ.get(_TIMELINE, "") not in _UNSET


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


def _run() -> None:
    here = os.path.normpath(os.path.dirname(__file__))
    running = getattr(sys, _RUNNING, None)
    if running is None:
        setattr(sys, _RUNNING, [here])
        try:
            _run_all(here)
        finally:
            delattr(sys, _RUNNING)
    elif here not in running:  # of another installation: the first attaches, once
        running.append(here)
        _run_the_other(here)


def _run_all(here: str) -> None:
    try:
        try:  # noqa: SIM105 - contextlib is not loaded yet in every process
            _drop_empty_entry(here)
        except Exception:  # noqa: BLE001 - a current folder that is gone, among others
            pass
        _run_the_other(here)
    finally:
        try:  # noqa: SIM105
            _attach()
        except Exception:  # noqa: BLE001 - the package is not here, or broken: the program goes on
            pass


_run()
