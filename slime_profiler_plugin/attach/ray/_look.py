"""What a Ray worker finds on its node. Sent there by value, so it names nothing outside itself."""

from __future__ import annotations


def look(autoload: str) -> dict[str, object]:
    """The package's version (``None``: it is not there), and whether the folder `autoload` was loaded."""
    import importlib.util
    import os
    import platform
    import sys

    found: dict[str, object] = {"python": platform.python_version(), "version": None}
    try:
        if importlib.util.find_spec("slime_profiler_plugin") is not None:
            import slime_profiler_plugin

            found["version"] = slime_profiler_plugin.__version__
    except Exception as error:  # noqa: BLE001 - a broken package is an answer too
        found["broken"] = f"{type(error).__name__}: {error}"
    path = os.environ.get("PYTHONPATH", "")
    found["on_path"] = autoload in path.split(os.pathsep)
    found["folder"] = os.path.isdir(autoload)
    file = getattr(sys.modules.get("sitecustomize"), "__file__", None) or ""
    found["autoload"] = os.path.dirname(file) == autoload
    return found
