"""What `check --fix` mends, in the real Perfetto."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from perfetto import TraceProcessorError, find_perfetto

from slime_profiler_plugin.check import RULES, check_paths, fix_files

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "check.md").read_text()
#: Of the examples, those that Perfetto says it cannot take as they stand; it says nothing of the others.
TOLD = {
    *("SP101", "SP104", "SP201", "SP203", "SP205", "SP301", "SP304", "SP308", "SP402", "SP403"),
    *("SP409", "SP411"),
}


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """The example of every rule that is mended, by code."""
    folder = tmp_path_factory.mktemp("examples")
    paths = {}
    for code, section in re.findall(r"^## (SP\d+): .*?\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S):
        if RULES[code].mended_by == "fix":
            ((about, text),) = re.findall(r"^```json ?(.*?)\n(.*?)\n```$", section, re.M | re.S)
            content = text.encode()
            if about == "escaped":
                content = text.encode("ascii").decode("unicode_escape").encode("latin-1")
            paths[code] = folder / f"{code}.json"
            paths[code].write_bytes(content)
    return paths


def _complaints(paths):
    answers = find_perfetto().query_each(list(paths.values()))
    return {
        code
        for code, answer in zip(paths, answers, strict=True)
        if isinstance(answer, TraceProcessorError) or answer[-1]
    }


def test_perfetto_complains_of_the_examples_and_of_no_mended_one(examples, tmp_path):
    assert _complaints(examples) == TOLD
    mended = {code: tmp_path / f"{code}.json" for code in examples}
    for code, path in examples.items():
        assert fix_files(check_paths([path]), [path], mended[code]).outputs, code
    assert _complaints(mended) == set()
