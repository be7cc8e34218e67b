"""Where the configuration comes from, and which source wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from slime_profiler_plugin.config import (
    Config,
    ConfigError,
    Profiler,
    Schedule,
    Stride,
    list_configs,
    load_config,
    read_config_text,
)


def test_nothing_given_is_off() -> None:
    assert load_config(None, {}) is None
    assert load_config(None, {"SLIME_PROFILER": "", "SLIME_COMMUNICATION_TIMELINE": "0"}) is None


@pytest.mark.parametrize("source", [None, "timeline", {}, Config(), Path("missing.yaml"), "no such name"])
def test_off_in_the_environment_beats_all(source: object) -> None:
    environ = {
        "SLIME_PROFILER": "off",
        "SLIME_COMMUNICATION_TIMELINE": "1",
        "SLIME_PROFILER_OUT": "elsewhere",
    }
    assert load_config(source, environ) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("off", ["off", "OFF", " Off ", "0", "false", "False", "no", "none", "NONE\n"])
@pytest.mark.parametrize("source", [None, "timeline", {}])
def test_other_words_for_off(off: str, source: object) -> None:
    environ = {"SLIME_PROFILER": off, "SLIME_COMMUNICATION_TIMELINE": "1"}
    assert load_config(source, environ) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("off", ["off", "None", "0"])
def test_an_explicit_off_is_off(off: str) -> None:
    assert load_config(off, {"SLIME_PROFILER": "kernels"}) is None


def test_the_switches() -> None:
    timeline = load_config("timeline", {})
    kernels = load_config("kernels", {})
    assert timeline is not None
    assert timeline != kernels
    assert load_config(None, {"SLIME_COMMUNICATION_TIMELINE": "1"}) == timeline
    assert load_config(None, {"SLIME_PROFILER": "kernels"}) == kernels
    both = {"SLIME_PROFILER": "kernels", "SLIME_COMMUNICATION_TIMELINE": "1"}
    assert load_config(None, both) == kernels
    assert load_config("timeline", {"SLIME_PROFILER": "kernels"}) == timeline
    assert load_config("timeline", {"SLIME_PROFILER": "./of-no-interest.yaml"}) == timeline
    assert load_config(None, {"SLIME_PROFILER": " kernels "}) == kernels


def test_the_folder_from_the_environment_beats_every_source(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("out: from-file")
    environ = {"SLIME_PROFILER_OUT": "from-environment"}
    for source in ("timeline", file, {"out": "given"}, Config(out="given")):
        config = load_config(source, environ)
        assert config is not None
        assert config.out == "from-environment"
    assert load_config(None, environ) is None


def test_a_slash_or_a_suffix_makes_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("timeline").write_text("out: from-path")
    Path("mine.yml").write_text("out: from-suffix")
    for source, out in (
        ("./timeline", "from-path"),
        (Path("timeline"), "from-path"),
        ("mine.yml", "from-suffix"),
    ):
        config = load_config(source, {})
        assert config is not None
        assert config.out == out
    shipped = load_config("timeline", {})
    assert shipped is not None
    assert shipped.out == "runs"


def test_what_the_shipped_files_say() -> None:
    assert list_configs() == ["everything", "kernels", "nsys", "timeline"]
    configs = {name: load_config(name, {}) for name in list_configs()}
    timeline, kernels, nsys, everything = (configs[n] for n in ("timeline", "kernels", "nsys", "everything"))
    assert timeline == Config()
    assert kernels is not None
    assert kernels.profiler == Profiler(schedule=Schedule(warmup=1), ranks=Stride(stride=8))
    assert nsys is not None
    assert nsys.profiler is None
    assert (nsys.outputs.nvtx, nsys.outputs.record_function, nsys.outputs.device_events) == (
        True,
        False,
        False,
    )
    assert everything is not None
    assert everything.profiler is not None
    profiler = everything.profiler
    assert profiler.ranks == "all"
    assert (profiler.with_stack, profiler.record_shapes, profiler.profile_memory) == (True, True, True)


def test_shipped_text_keeps_its_comments() -> None:
    assert read_config_text("timeline").startswith("# Always on")


def test_an_empty_mapping_and_an_empty_file_are_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "empty.yaml"
    file.write_text("# nothing but a comment\n")
    assert load_config(file, {}) == load_config({}, {}) == Config()


def test_public_is_what_load_reads() -> None:
    config = load_config("everything", {})
    assert config is not None
    assert load_config(config.public(), {}) == config
    assert load_config(config, {}) == config


def test_a_config_built_in_code_is_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"settings: profiler\.schedule\.active: 0 is not allowed"):
        load_config(Config(profiler=Profiler(schedule=Schedule(active=0))), {})
