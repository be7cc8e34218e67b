"""What torch.profiler writes into every file is no finding: `--strict` passes on a file that is in order."""

from __future__ import annotations

import pytest
from small_traces import event, findings, named, slice_, write

from slime_profiler_plugin.check import check_paths

#: As torch.profiler writes them, whatever was recorded.
INVENTED = (
    slice_("PyTorch Profiler (0)", pid="Spans", tid="PyTorch Profiler", cat="Trace"),
    event("i", name="Iteration Start: PyTorch Profiler", pid="Traces", tid="Trace PyTorch Profiler", s="g"),
    event("i", name="Record Window End", pid="", tid="", s="g"),
)


def label(pid: int, text: str) -> dict[str, object]:
    return {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": text}}


def test_a_file_of_a_machine_with_gpus_passes_strictly(tmp_path):
    described = [
        named("process_name", "python", pid=1, tid=0),
        label(1, "CPU"),
        *(named("process_name", "python", pid=70 + gpu, tid=0) for gpu in range(8)),
        *(label(70 + gpu, f"GPU {gpu}") for gpu in range(8)),
        named("thread_name", "thread 1 (python)"),
        named("thread_name", "thread 1 (pt_gloo_runloop)"),
    ]
    path = write(tmp_path / "rank0.pt.trace.json", [*described, slice_(), *INVENTED])
    report = check_paths([path])
    assert report.findings == []
    assert report.exit_code(strict=True) == 0


def test_other_strings_beside_them_are_told(tmp_path):
    found = findings(tmp_path, slice_(tid="stream 7"), *INVENTED)
    assert found.keys() == {"SP105"}
    assert found["SP105"].message == "1 track has a string as pid or tid (1 event)"


@pytest.mark.parametrize("name", ["gloo", "thread 1", "Thread 1 (python)"])
def test_names_that_a_program_gave_are_told_if_they_disagree(tmp_path, name):
    names = named("thread_name", "thread 1 (python)"), named("thread_name", name)
    assert findings(tmp_path, *names, slice_()).keys() == {"SP110"}


def test_a_name_of_what_is_no_device_is_told(tmp_path):
    assert findings(
        tmp_path, named("process_name", "helper", pid=9), label(9, "helper"), slice_()
    ).keys() == {"SP111"}
