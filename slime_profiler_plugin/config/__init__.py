"""One typed configuration: a YAML file, a mapping or a shipped name, then the environment."""

from slime_profiler_plugin._switch import SWITCH_VARIABLE, TIMELINE_VARIABLE

from ._load import (
    OUT_VARIABLE,
    ConfigSource,
    describe_out,
    load_config,
    read_config_text,
)
from ._settings import (
    Config,
    EngineWindow,
    Outputs,
    Profiler,
    RankChoice,
    Records,
    Schedule,
    Stride,
    Trigger,
    selects_rank,
)
from ._shipped import list_configs
from ._yaml import ConfigError

__all__ = [
    "OUT_VARIABLE",
    "SWITCH_VARIABLE",
    "TIMELINE_VARIABLE",
    "Config",
    "ConfigError",
    "ConfigSource",
    "EngineWindow",
    "Outputs",
    "Profiler",
    "RankChoice",
    "Records",
    "Schedule",
    "Stride",
    "Trigger",
    "describe_out",
    "list_configs",
    "load_config",
    "read_config_text",
    "selects_rank",
]
