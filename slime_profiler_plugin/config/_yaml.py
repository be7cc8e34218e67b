"""YAML text to plain values, with the errors PyYAML leaves out."""

from __future__ import annotations

from typing import Any

import yaml


class ConfigError(ValueError):
    """A configuration that cannot be used; the text names source, key, value and what is allowed."""


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice, where YAML would let the last one win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[Any, int] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue  # refused below, by the constructor or as a key that is no text
            key, line = key_node.value, key_node.start_mark.line + 1
            if key in lines:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} stands twice, in lines {lines[key]} and {line}"
                )
            lines[key] = line
        return super().construct_mapping(node, deep)


def parse_settings(text: str, subject: str) -> dict[Any, Any]:
    """The mapping in `text`; empty text is an empty mapping.

    Raises `ConfigError`, its text beginning with `subject`, for what is no YAML mapping.
    """
    try:
        loaded = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{subject}: not valid YAML: {_describe(error)}") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ConfigError(
            f"{subject}: the file holds a {type(loaded).__name__}, not settings; allowed: keys with values"
        )
    return loaded


def _describe(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        mark = error.problem_mark
        return f"line {mark.line + 1}: {error.problem}" if mark else error.problem
    return str(error).replace("\n", " ")
