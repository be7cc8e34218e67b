"""The quick look at the switches agrees with the configuration's own."""

import pytest

from slime_profiler_plugin.attach._switch import may_record
from slime_profiler_plugin.config import load_config


@pytest.mark.parametrize(
    "switch", [None, "", "off", "OFF ", "0", "no", "none", "False", "timeline", " kernels "]
)
@pytest.mark.parametrize("timeline", [None, "", "0", "1"])
def test_it_says_what_the_configuration_says(switch, timeline):
    said = {"SLIME_PROFILER": switch, "SLIME_COMMUNICATION_TIMELINE": timeline}
    environ = {name: value for name, value in said.items() if value is not None}
    assert may_record(environ) == (load_config(None, environ) is not None)
