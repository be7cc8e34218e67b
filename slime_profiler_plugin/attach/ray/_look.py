"""What a Ray worker finds on its node. Sent there by value, so it names nothing outside itself."""

from __future__ import annotations


def look(autoload: str) -> dict[str, object]:
    """The package's version (``None``: it is not there), whether autoload ran, and why it may not have."""
    import importlib.util
    import os
    import sys

    # Before anything of the package is imported here: then autoload has imported it.
    found: dict[str, object] = {"version": None, "autoload": "slime_profiler_plugin.attach" in sys.modules}
    try:
        if importlib.util.find_spec("slime_profiler_plugin") is not None:
            import slime_profiler_plugin

            found["version"] = slime_profiler_plugin.__version__
    except Exception as error:  # noqa: BLE001 - a broken package is an answer too
        found["broken"] = f"{type(error).__name__}: {error}"
    path = os.environ.get("PYTHONPATH", "")
    found["on_path"] = autoload in path.split(os.pathsep)
    found["folder"] = os.path.isdir(autoload)
    found["switch"] = os.environ.get("SLIME_PROFILER") or os.environ.get("SLIME_COMMUNICATION_TIMELINE")
    return found
