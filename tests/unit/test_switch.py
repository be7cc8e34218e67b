"""The quick look at the switches agrees with the configuration's own."""

import ast
from pathlib import Path

import pytest

import slime_profiler_plugin
from slime_profiler_plugin._switch import OFF_WORDS, SWITCH_VARIABLE, TIMELINE_VARIABLE, may_record
from slime_profiler_plugin.config import load_config


@pytest.mark.parametrize(
    "switch", [None, "", "off", "OFF ", "0", "no", "none", "False", "timeline", " kernels "]
)
@pytest.mark.parametrize("timeline", [None, "", "0", "1"])
def test_it_says_what_the_configuration_says(switch, timeline):
    said = {"SLIME_PROFILER": switch, "SLIME_COMMUNICATION_TIMELINE": timeline}
    environ = {name: value for name, value in said.items() if value is not None}
    assert may_record(environ) == (load_config(None, environ) is not None)


def test_the_file_that_imports_nothing_of_ours_has_the_same_words():
    file = Path(slime_profiler_plugin.__file__).parent / "attach" / "autoload" / "sitecustomize.py"
    said = {}
    for line in ast.parse(file.read_text()).body:
        if isinstance(line, ast.Assign):
            said[ast.unparse(line.targets[0])] = ast.literal_eval(line.value)
    assert said["(_SWITCH, _TIMELINE)"] == (SWITCH_VARIABLE, TIMELINE_VARIABLE)
    assert said["_OFF"] == OFF_WORDS
