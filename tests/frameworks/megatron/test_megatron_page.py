"""docs/megatron.md, as somebody follows it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from megatron_runs import HERE, find_environment, free_port, megatron_environment
from recordings import ROOT, environment, read_file, record_files

from slime_profiler_plugin import schema

PAGE = (ROOT / "docs" / "megatron.md").read_text()
SCRIPT, BY_HAND, EXPERTS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
RECORD, LOOK = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.M | re.S)
(SEEN,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.M | re.S)

#: The commands of the page as they are found on this machine.
COMMANDS = """
torchrun() {
  "$MEGATRON/python" -m torch.distributed.run --master_addr=127.0.0.1 --master_port="$PORT" \
    "${@:1:$#-1}" "$WITHOUT_CUDA" "${@: -1}"
}
slime-profiler() { "$PYTHON" -m slime_profiler_plugin.cli "$@"; }
"""

pytestmark = [pytest.mark.megatron, pytest.mark.timeout(300)]


def follow(folder: Path, commands: str, **more: str) -> str:
    environ = megatron_environment(
        MEGATRON=str(find_environment()),
        PYTHON=sys.executable,
        PORT=str(free_port()),
        WITHOUT_CUDA=str(HERE / "without_cuda.py"),
        **more,
    )
    done = subprocess.run(
        ["bash", "-ec", COMMANDS + commands],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_records(folder: Path) -> None:
    files = record_files(folder / "runs")
    assert len(files) == 2
    for file in files:
        lines = read_file(file)
        assert not [line for line in lines if type(line) is schema.Drop]
        counts = Counter(line.name for line in lines if type(line) is schema.Phase)
        assert counts["forward_backward"] == counts["optimizer"] == counts["optimizer_clip"] == 3
        assert counts["forward"] == counts["backward"] == 12
        assert counts["grad_sync_start"] == counts["param_gather"] == 3
        assert set(counts) <= set(SEEN.replace("optimizer_count_zeros", "").split()) | {
            "grad_sync_finish",
            "param_sync_start",
        }


def test_the_page_leads_from_a_script_to_a_timeline(tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text(SCRIPT)
    printed = follow(tmp_path, RECORD + LOOK)
    check_records(tmp_path)
    assert "initial.trace.json.gz" in printed
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "merged" / "initial.trace.json.gz").stat().st_size > 0


@pytest.mark.full
def test_by_hand(tmp_path: Path) -> None:
    loop = "for _ in range(3):\n"
    assert SCRIPT.count(loop) == 1
    (tmp_path / "tiny.py").write_text(SCRIPT.replace(loop, BY_HAND + loop))
    follow(tmp_path, "torchrun --nproc_per_node=2 tiny.py")
    check_records(tmp_path)


def test_own_expert_parallelism(tmp_path: Path) -> None:
    program = (
        "from slime_profiler_plugin import timeline\ntimeline.start({'outputs': {'nvtx': False}})\n" + EXPERTS
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment(), timeout=60, check=True)
    (file,) = record_files(tmp_path / "runs")
    names = [line.name for line in read_file(file) if type(line) is schema.Phase]
    assert names == ["ep_dispatch", "ep_combine", "ep_gather"]
