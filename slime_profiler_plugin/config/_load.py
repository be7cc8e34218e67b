"""From what a user gave to a `Config`, or to ``None`` for off."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec

from ._settings import Config
from ._shipped import read_config_text, suggest
from ._yaml import ConfigError, parse_settings

#: A shipped name, a path, or ``off``.
SWITCH_VARIABLE: Final = "SLIME_PROFILER"
#: ``1`` means the shipped configuration ``timeline``.
TIMELINE_VARIABLE: Final = "SLIME_COMMUNICATION_TIMELINE"
#: Takes the place of the key `out`.
OUT_VARIABLE: Final = "SLIME_PROFILER_OUT"
OFF: Final = "off"

T = TypeVar("T", bound=msgspec.Struct)


def load_config(
    source: str | Path | dict[str, Any] | Config | None, environ: Mapping[str, str]
) -> Config | None:
    """The configuration to record with, or ``None`` when nothing switches it on.

    `source` is a shipped name, a path (a text with a slash or ending in ``.yaml``/``.yml``),
    settings, or ``off``; it beats what `environ` names. ``SLIME_PROFILER=off`` beats all,
    ``SLIME_PROFILER_OUT`` takes the place of `out`.

    Raises `ConfigError` for anything that cannot be used.
    """
    if environ.get(SWITCH_VARIABLE) == OFF:
        return None
    if source is None:
        config = _from_environment(environ)
    elif isinstance(source, Config):
        config = _build(source.public(), "settings")
    elif isinstance(source, dict):
        config = _build(source, "settings")
    elif isinstance(source, Path):
        config = _from_file(source, "")
    elif isinstance(source, str):
        config = _from_text(source, "")
    else:
        raise ConfigError(
            f"configuration: {source!r} is a {type(source).__name__}; "
            "allowed: a shipped name, a path, settings"
        )
    out = environ.get(OUT_VARIABLE)
    if config is None or not out:
        return config
    return msgspec.structs.replace(config, out=out)


def _from_environment(environ: Mapping[str, str]) -> Config | None:
    if name := environ.get(SWITCH_VARIABLE):
        return _from_text(name, f"environment variable {SWITCH_VARIABLE}: ")
    switch = environ.get(TIMELINE_VARIABLE, "")
    if switch in ("", "0"):
        return None
    if switch == "1":
        return _from_text("timeline", f"environment variable {TIMELINE_VARIABLE}: ")
    raise ConfigError(f"environment variable {TIMELINE_VARIABLE}: {switch!r} is not allowed; allowed: 0, 1")


def _from_text(text: str, told_by: str) -> Config | None:
    if text == OFF:
        return None
    if "/" in text or text.endswith((".yaml", ".yml")):
        return _from_file(Path(text), told_by)
    try:
        shipped = read_config_text(text)
    except ConfigError as error:
        raise ConfigError(f"{told_by}{error}") from None
    subject = f"{told_by}shipped configuration {text}"
    return _build(parse_settings(shipped, subject), subject)


def _from_file(path: Path, told_by: str) -> Config:
    subject = f"{told_by}{path}"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{subject}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{subject}: not UTF-8 text: {error.reason} at byte {error.start}") from error
    return _build(parse_settings(text, subject), subject)


def _build(settings: dict[Any, Any], subject: str) -> Config:
    config = _build_struct(Config, settings, subject, "")
    _check_profiler(config, subject)
    return config


def _build_struct(kind: type[T], settings: Any, subject: str, path: str) -> T:
    """`settings` as a `kind`, checked key by key so that an error can name the key and its value."""
    fields = {f.name: f for f in msgspec.structs.fields(kind)}
    if not isinstance(settings, dict):
        raise _refuse(subject, path, settings, f"keys with values ({', '.join(fields)})")
    prefix = f"{path}." if path else ""
    built = {}
    for key, value in settings.items():
        if key not in fields:
            raise ConfigError(
                f"{subject}: unknown key {prefix}{key}{suggest(str(key), list(fields))}; "
                f"allowed: {', '.join(prefix + name for name in fields)}"
            )
        built[key] = _build_value(fields[key].type, value, subject, f"{prefix}{key}")
    missing = [name for name, f in fields.items() if f.required and name not in built]
    if missing:
        raise ConfigError(f"{subject}: {path}: the key {missing[0]} is missing")
    return kind(**built)


def _build_value(kind: Any, value: Any, subject: str, path: str) -> Any:
    choices = get_args(kind) or (kind,)
    if value is None and type(None) in choices:
        return None
    structs = [c for c in choices if _is_struct(c)]
    others = [c for c in choices if c not in structs and c is not type(None)]
    if structs and (isinstance(value, dict) or not others):
        return _build_struct(structs[0], value, subject, path)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _refuse(subject, path, value, _allowed(path, str(error))) from None


def _is_struct(kind: Any) -> bool:
    # Python 3.10 takes list[int] for a type, and refuses to ask what it is a subclass of.
    return get_origin(kind) is None and isinstance(kind, type) and issubclass(kind, msgspec.Struct)


#: What is allowed, where the type alone would not say it well.
_ALLOWED: Final = {
    "profiler.ranks": "all, first, last, a list of different ranks >= 0, or {stride: N, offset: N}",
    "profiler.roles": "a list of different role names in snake_case, at least one",
    "profiler.activities": "a list of different names, one or more of cpu, cuda, xpu, mtia, hpu, privateuse1",
}


def _allowed(path: str, problem: str) -> str:
    """The allowed values in words: from the table, or from msgspec's "Expected …"."""
    expected = (
        problem.partition("Expected ")[2].partition(" - at ")[0].partition(", got ")[0].replace("`", "")
    )
    names = {"bool": "true or false", "str": "text", "int": "a whole number", "float": "a number"}
    word, _, limit = expected.partition(" ")
    return _ALLOWED.get(path) or " ".join(filter(None, (names.get(word, word), limit)))


def _refuse(subject: str, path: str, value: Any, allowed: str) -> ConfigError:
    return ConfigError(f"{subject}: {path or 'settings'}: {value!r} is not allowed; allowed: {allowed}")


def _check_profiler(config: Config, subject: str) -> None:
    """What types cannot say: nothing is named twice, and a list of ranks names one."""
    profiler = config.profiler
    if profiler is None:
        return
    for key in ("ranks", "roles", "activities"):
        value = getattr(profiler, key)
        if isinstance(value, tuple) and (not value or len(set(value)) < len(value)):
            path = f"profiler.{key}"
            raise _refuse(subject, path, list(value), _ALLOWED[path])
