"""The writer: whole files or none."""

import json
import random
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import load, ns

from slime_profiler_plugin.merge._ledger import ConservationError, Ledger
from slime_profiler_plugin.merge._part import spell_backslashes
from slime_profiler_plugin.merge._source import add_members, format_us, members
from slime_profiler_plugin.merge._writer import TraceWriter


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
@pytest.mark.parametrize("events", [0, 1, 100_000])
def test_file_appears_when_it_is_finished_and_is_strict_json(tmp_path, name, events):
    path = tmp_path / "new" / name
    with TraceWriter(path, {"a": 1}) as writer:
        writer.write([b'{"n":%d}' % n for n in range(events)])
        writer.write([])
        assert not path.exists()
        writer.finish({"z": "ä"})
    assert load(path) == {"a": 1, "traceEvents": [{"n": n} for n in range(events)], "z": "ä"}
    assert [p.name for p in path.parent.iterdir()] == [name]


def test_file_that_was_not_finished_leaves_nothing_and_keeps_what_was_there(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("before")
    with TraceWriter(path, {}) as writer:
        writer.write([b"{}"])
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.fixture
def full_disk():
    """No file of this process may grow past 1 MB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
@pytest.mark.usefixtures("full_disk")
def test_full_disk_is_told_with_the_name_of_the_file_and_leaves_nothing(tmp_path, name):
    path = tmp_path / name
    with pytest.raises(OSError, match="File too large") as raised, TraceWriter(path, {}) as writer:
        writer.write([b'"%s"' % random.Random(0).randbytes(3_000_000).hex().encode()])
    assert raised.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_that_name_is_told_by_that_name(tmp_path):
    path = tmp_path / "a.json"
    path.mkdir()
    with pytest.raises(IsADirectoryError) as raised, TraceWriter(path, {}) as writer:
        writer.finish({})
    assert (raised.value.filename, raised.value.filename2) == (str(path), None)
    assert list(tmp_path.iterdir()) == [path]


@given(st.integers(-(2**63), 2**63))
def test_microseconds_are_exact(value):
    text = format_us(value).decode()
    assert ns(text.lstrip("-")) == abs(value)
    assert text.startswith("-") == (value < 0)


@given(
    st.dictionaries(st.text(max_size=5).map(lambda k: "a" + k), st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5).map(lambda k: "b" + k), st.integers(0, 9), min_size=1, max_size=3),
    st.sampled_from([None, 2]),
)
def test_members_are_added_to_an_object_as_text(values, more, indent):
    text = json.dumps(values, indent=indent).encode()
    assert json.loads(add_members(text, members(more))) == values | more


def test_ledger_that_does_not_add_up_says_where_and_by_how_much():
    ledger = Ledger(source="actor rank 0", read=10, written=5, other_rollouts=2, described=1)
    with pytest.raises(ConservationError, match="actor rank 0: 10 read, but 8 accounted for"):
        ledger.check()
    ledger.dropped["reason"] += 2
    ledger.check()


@given(st.lists(st.text('\\\\"a', max_size=6), max_size=4))
def test_strings_that_end_in_a_backslash_mean_the_same_and_are_spelled_for_perfetto(strings):
    text = json.dumps({"args": strings}).encode()
    spelled = spell_backslashes(text)
    assert json.loads(spelled) == {"args": strings}
    ends = sum(s.endswith("\\") for s in strings)
    assert spelled.count(b'\\u005c"') == ends
