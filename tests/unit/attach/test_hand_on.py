"""A switch that only the driver knows reaches the workers of a submitted job."""

import json

import pytest

from slime_profiler_plugin.attach._hand_on import JOB_VARIABLE, hand_on


def handed(job, **environ):
    environ[JOB_VARIABLE] = json.dumps(job)
    hand_on(environ)
    return json.loads(environ[JOB_VARIABLE])


def test_what_the_job_says_itself_stays():
    job = {
        "runtime_env": {"env_vars": {"SLIME_PROFILER": "off", "PATH": "/bin"}, "pip": ["a"]},
        "metadata": {"b": 1},
    }
    found = handed(job, SLIME_PROFILER="timeline", SLIME_PROFILER_OUT="/runs", HOME="/root")
    assert found["runtime_env"].pop("env_vars") == {
        "SLIME_PROFILER": "off",
        "PATH": "/bin",
        "SLIME_PROFILER_OUT": "/runs",
    }
    assert found == {"runtime_env": {"pip": ["a"]}, "metadata": {"b": 1}}


@pytest.mark.parametrize("job", [{}, {"runtime_env": None}, {"runtime_env": {"env_vars": None}}])
def test_a_job_that_says_nothing_says_it_then(job):
    assert handed(job, SLIME_COMMUNICATION_TIMELINE="1")["runtime_env"]["env_vars"] == {
        "SLIME_COMMUNICATION_TIMELINE": "1"
    }


def test_nothing_to_hand_on_leaves_the_text_as_it_is():
    environ = {JOB_VARIABLE: '{"runtime_env":   {}}', "SLIME_PROFILER": ""}
    before = dict(environ)
    hand_on(environ)
    assert environ == before
    assert hand_on({"SLIME_PROFILER": "timeline"}) is None
