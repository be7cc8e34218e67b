"""The commands of docs/slime.md, as far as they run without slime, and the phases that it names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

from recordings import ROOT

from slime_profiler_plugin.attach import AUTOLOAD_FOLDER
from slime_profiler_plugin.attach.slime import TARGETS
from slime_profiler_plugin.config import load_config
from slime_profiler_plugin.phases import BUILT_IN

PAGE = (ROOT / "docs" / "slime.md").read_text(encoding="utf-8")
#: As slime's launch scripts have it.
SCRIPT = """RUNTIME_ENV_JSON="{
  \\"env_vars\\": {\\"PYTHONPATH\\": \\"/root/Megatron-LM/\\", \\"A\\": \\"1\\"}
}"
"""


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


def test_the_line_of_the_launch_script_keeps_what_the_script_says(tmp_path):
    config = tmp_path / "timeline.yaml"
    config.write_text(blocks("yaml")[0].replace("/shared/runs", str(tmp_path)))
    assert load_config(str(config), {}).out == str(tmp_path)
    (line,) = (block for block in blocks("sh") if block.startswith("RUNTIME_ENV_JSON="))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLIME_")}
    command = tmp_path / "slime-profiler"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m slime_profiler_plugin.cli "$@"\n')
    command.chmod(0o755)
    text = SCRIPT + line.replace("/shared/timeline.yaml", str(config)) + 'printf %s "$RUNTIME_ENV_JSON"'
    done = subprocess.run(
        ["bash", "-c", text],
        env={**kept, "PATH": f"{tmp_path}:{kept['PATH']}", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "env_vars": {
            "PYTHONPATH": f"{AUTOLOAD_FOLDER}:/root/Megatron-LM/",
            "A": "1",
            "SLIME_PROFILER": str(config),
        }
    }


def test_each_phase_of_slimes_is_on_the_page_and_each_on_the_page_is_one():
    named = set(re.findall(r"`([a-z_]+)`", PAGE))
    hooked = {phase for target in TARGETS for phase in target.phases if phase in BUILT_IN}
    assert hooked <= named
    tables = "".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    rows = {name for name in re.findall(r"`([a-z]+_[a-z_]+)`", tables) if name != "engine_client"}
    assert rows - {"rollout_manager", "update_weights"} <= set(BUILT_IN)
