"""Inputs that once held up the linter, or ended it."""

import json
import os

import pytest
from command_line import run

from slime_profiler_plugin.check import check_paths


def write(path, text):
    path.write_text('{"baseTimeNanoseconds":1751328000000000000,' + text + "}")
    return path


OP = '{"ph":"X","name":"op","pid":1,"tid":1,"ts":5,"dur":1%s}'


def test_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "f.json")
    result = run("check", tmp_path / "f.json")
    assert result.exit_code == 1
    assert "SP414" in result.stdout


@pytest.mark.parametrize("digits", [21, 5000])
def test_number_of_any_length_is_too_large(tmp_path, digits):
    args = ',"args":{"n":' + "9" * digits + "}"
    path = write(tmp_path / "a.json", '"traceEvents":[' + OP % args + "]")
    assert [f.code for f in check_paths([path]).findings if f.severity != "info"] == ["SP412"]


def test_much_white_space_before_a_bracket(tmp_path):
    path = write(tmp_path / "a.json", '"traceEvents":[' + OP % "" + " " * 3_000_000 + "]")
    assert [f.code for f in check_paths([path]).findings if f.severity == "error"] == []


def test_world_of_any_size(tmp_path):
    for rank in (0, 1):
        about = json.dumps({"rank": rank, "world_size": 10**12})
        write(tmp_path / f"rank{rank}.json", f'"distributedInfo":{about},"traceEvents":[' + OP % "" + "]")
    assert "SP502" not in {f.code for f in check_paths([tmp_path]).findings}


HOST = '{"ph":"X","cat":"cuda_runtime","name":"l","pid":1,"tid":1,"ts":%d,"dur":1,"args":{"correlation":7}}'
DEVICE = '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%d,"dur":1,"args":{"correlation":7}}'


def test_device_events_of_a_merged_file_are_not_joined_across_ranks(tmp_path):
    for rank in (0, 1):
        events = HOST % (10 + 100 * rank) + "," + DEVICE % (20 + 100 * rank)
        write(tmp_path / f"rank{rank}.json", f'"distributedInfo":{{"rank":{rank}}},"traceEvents":[{events}]')
    assert run("merge", tmp_path, "-o", tmp_path / "o" / "m.json").exit_code == 0
    assert "SP601" not in {f.code for f in check_paths([tmp_path / "o" / "m.json"]).findings}
