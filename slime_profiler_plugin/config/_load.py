"""From what a user gave to a `Config`, or to ``None`` for off."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, get_args, get_origin

import msgspec

from slime_profiler_plugin._switch import OFF, SWITCH_VARIABLE, TIMELINE_VARIABLE, is_off

from ._settings import Config
from ._shipped import check_name, read_shipped_text, suggest
from ._yaml import ConfigError, parse_settings

#: Takes the place of the key `out`.
OUT_VARIABLE: Final = "SLIME_PROFILER_OUT"

_TOLD_BY_SWITCH: Final = f"environment variable {SWITCH_VARIABLE}: "

#: What `load_config` takes.
ConfigSource: TypeAlias = "str | Path | dict[str, Any] | Config | None"

T = TypeVar("T", bound=msgspec.Struct)


def load_config(source: ConfigSource, environ: Mapping[str, str]) -> Config | None:
    """The configuration to record with, or ``None`` when nothing switches it on.

    `source` is a shipped name, a path (a text with a slash or ending in ``.yaml``/``.yml``),
    settings, or ``off``; it beats what `environ` names. ``SLIME_PROFILER=off`` beats all,
    ``SLIME_PROFILER_OUT`` takes the place of `out`. For ``off``, also ``0 false no none`` in
    any case.

    Raises `ConfigError` for anything that cannot be used, and for a ``SLIME_PROFILER`` that
    is no shipped name even where `source` beats it: it may be an ``off`` with a typing error.
    """
    switch = environ.get(SWITCH_VARIABLE, "").strip()
    if is_off(switch):
        return None
    if switch and not _is_path(switch):
        _check_name(switch, _TOLD_BY_SWITCH)
    if source is None:
        config = _from_environment(switch, environ)
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


def read_config_text(source: str) -> str:
    """The text, comments included, of a shipped configuration or of the file at a path.

    Raises `ConfigError` as `load_config` does: the text of a file is one that can be used.
    """
    if not _is_path(source):
        return read_shipped_text(source)
    text = _read_file(Path(source), source)
    _build(parse_settings(text, source), source)
    return text


def describe_out(config: Config, source: ConfigSource, environ: Mapping[str, str]) -> str:
    """Who says what the key `out` of `config` is, which came of `load_config(source, environ)`."""
    if environ.get(OUT_VARIABLE):
        return f"environment variable {OUT_VARIABLE}"
    if config.out == Config().out:
        return f"the key out, by default {config.out}"
    file = environ.get(SWITCH_VARIABLE) if source is None else source
    return f"the key out in {file}" if isinstance(file, (str, Path)) else "the key out given to start()"


def _from_environment(switch: str, environ: Mapping[str, str]) -> Config | None:
    if switch:
        return _from_text(switch, _TOLD_BY_SWITCH)
    timeline = environ.get(TIMELINE_VARIABLE, "")
    if timeline in ("", "0"):
        return None
    if timeline == "1":
        return _from_text("timeline", f"environment variable {TIMELINE_VARIABLE}: ")
    raise ConfigError(f"environment variable {TIMELINE_VARIABLE}: {timeline!r} is not allowed; allowed: 0, 1")


def _from_text(text: str, told_by: str) -> Config | None:
    if is_off(text):
        return None
    if _is_path(text):
        return _from_file(Path(text), told_by)
    _check_name(text, told_by)
    subject = f"{told_by}shipped configuration {text}"
    return _build(parse_settings(read_shipped_text(text), subject), subject)


def _is_path(text: str) -> bool:
    return "/" in text or text.endswith((".yaml", ".yml"))


def _check_name(name: str, told_by: str) -> None:
    try:
        check_name(name, OFF)
    except ConfigError as error:
        raise ConfigError(f"{told_by}{error}") from None


def _from_file(path: Path, told_by: str) -> Config:
    subject = f"{told_by}{path}"
    return _build(parse_settings(_read_file(path, subject), subject), subject)


def _read_file(path: Path, subject: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{subject}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{subject}: not UTF-8 text: {error.reason} at byte {error.start}") from error


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
    """What types cannot say: nothing is named twice, a list of ranks names one, a trigger can be read."""
    profiler = config.profiler
    if profiler is None:
        return
    if profiler.trigger is not None and not config.outputs.records:
        raise ConfigError(f"{subject}: profiler.trigger needs outputs.records: who writes them reads for it")
    for key in ("ranks", "roles", "activities"):
        value = getattr(profiler, key)
        if isinstance(value, tuple) and (not value or len(set(value)) < len(value)):
            path = f"profiler.{key}"
            raise _refuse(subject, path, list(value), _ALLOWED[path])
