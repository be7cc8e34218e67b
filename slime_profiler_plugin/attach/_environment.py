"""The environment that attaches what inherits it: a switch, and a folder of ours on the path."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Raw

from slime_profiler_plugin.config import SWITCH_VARIABLE, load_config

PATH_VARIABLE: Final = "PYTHONPATH"
#: Holds nothing but ``sitecustomize.py``.
AUTOLOAD_FOLDER: Final = Path(__file__).resolve().parent / "autoload"
_ENV_VARS: Final = "env_vars"
_NULL: Final = Raw(b"null")
_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])


class EnvironmentUsageError(ValueError):
    """What was given cannot take our variables in."""


def switch_for(config: str, environ: Mapping[str, str]) -> str:
    """The value of ``SLIME_PROFILER`` for a shipped name or the path of a file, which becomes absolute.

    Raises `config.ConfigError` for anything that cannot be used.
    """
    load_config(config, {key: value for key, value in environ.items() if key != SWITCH_VARIABLE})
    is_path = "/" in config or config.endswith((".yaml", ".yml"))
    return os.path.abspath(config) if is_path else config


def prepend_folder(path: str | None) -> str:
    """`path` with our folder first, once; alone where there is none. Raises `EnvironmentUsageError`.

    >>> prepend_folder("/a:/b") == f"{AUTOLOAD_FOLDER}:/a:/b" == prepend_folder(f"/a:{AUTOLOAD_FOLDER}:/b")
    True
    """
    ours = _our_folder()
    rest = [] if path is None else [part for part in path.split(os.pathsep) if part != ours]
    return os.pathsep.join([ours, *rest])


def environment_for(config: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What to add to `environ`, for processes that inherit it. Raises `EnvironmentUsageError`,
    `config.ConfigError`.
    """
    path = environ.get(PATH_VARIABLE) or None
    return {SWITCH_VARIABLE: switch_for(config, environ), PATH_VARIABLE: prepend_folder(path)}


def add_to_runtime_env(text: str, config: str, environ: Mapping[str, str]) -> str:
    """Ray's ``runtime_env`` as JSON, with our variables added; every other value stays byte for byte.

    Where ``env_vars`` has no ``PYTHONPATH``, the node's own stays behind ours: Ray puts it in place of
    ``${PYTHONPATH}``. Raises `EnvironmentUsageError` for what is no such JSON, `config.ConfigError`.

    >>> text = add_to_runtime_env('{"pip": [1.50]}', "timeline", {})
    >>> text.replace(str(AUTOLOAD_FOLDER), "/ours")
    '{"pip":[1.50],"env_vars":{"SLIME_PROFILER":"timeline","PYTHONPATH":"/ours:${PYTHONPATH}"}}'
    """
    switch = switch_for(config, environ)
    if not _is_utf8(text + switch):
        raise EnvironmentUsageError(
            "neither the runtime environment nor the path of a configuration may "
            "hold bytes that are not UTF-8: JSON is"
        )
    outer = _members(text or "{}", "the runtime environment")
    given = outer.get(_ENV_VARS, _NULL)
    variables = {} if given == _NULL else _members(given, _ENV_VARS)  # to Ray, too, none
    path = "${PYTHONPATH}"
    if PATH_VARIABLE in variables:
        try:
            path = msgspec.json.decode(variables[PATH_VARIABLE], type=str)
        except msgspec.DecodeError:
            raise EnvironmentUsageError(f"{_ENV_VARS}: {PATH_VARIABLE} is no text") from None
    variables[SWITCH_VARIABLE] = Raw(msgspec.json.encode(switch))
    variables[PATH_VARIABLE] = Raw(msgspec.json.encode(prepend_folder(path or None)))
    outer[_ENV_VARS] = Raw(msgspec.json.encode(variables))
    return msgspec.json.encode(outer).decode()


def shell_lines(config: str, environ: Mapping[str, str]) -> str:
    """``export`` lines for a shell, which keep what its ``PYTHONPATH`` has. Raises `EnvironmentUsageError`,
    `config.ConfigError`.
    """
    ours = shlex.quote(_our_folder())
    return (
        f"export {SWITCH_VARIABLE}={shlex.quote(switch_for(config, environ))}\n"
        f'export {PATH_VARIABLE}={ours}"${{{PATH_VARIABLE}:+:${PATH_VARIABLE}}}"'
    )


def _our_folder() -> str:
    """The folder as an entry of ``PYTHONPATH``, where nothing can be written for a colon in it."""
    ours = str(AUTOLOAD_FOLDER)
    if os.pathsep in ours:
        raise EnvironmentUsageError(
            f"{ours!r} has a {os.pathsep!r} in it, and cannot stand in {PATH_VARIABLE}"
        )
    return ours


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # surrogates: what Python makes of such bytes of the command line
        return False
    return True


def _members(text: str | bytes | Raw, what: str) -> dict[str, Raw]:
    try:
        return _OBJECT.decode(text)
    except msgspec.DecodeError as error:
        raise EnvironmentUsageError(f"{what} is no JSON object: {error}") from None
