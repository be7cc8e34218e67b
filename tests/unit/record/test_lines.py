"""Whatever the program gives as a field, every reader can decode the line."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_profiler_plugin import schema
from slime_profiler_plugin.record._lines import check_rollout, open_line, to_line
from slime_profiler_plugin.record._queue import RawRecord, Record
from slime_profiler_plugin.record._values import as_text

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.text(alphabet=st.characters(categories=["Cs", "Lu"]))
    | st.binary()
    | st.builds(object)
    | st.sampled_from([np.int64(7), np.float32(1.5), np.bool_(True), {1, 2}, 3j]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=8,
)
columns = st.sampled_from(
    ["step", "bytes", "bucket", "transport", "engine", "sync", "source", "error", "weight_version"]
)
fields = st.none() | st.dictionaries(columns | st.text(), anything, max_size=6)


def raw(**changes: Any) -> RawRecord:
    values: dict[str, Any] = {
        "name": "bucket_send",
        "id": 7,
        "parent": 3,
        "rollout": 2,
        "start_ns": 100,
        "end_ns": 160,
        "tid": 5,
        "task": None,
        "fields": None,
        "error": None,
    }
    return tuple({**values, **changes}.values())  # type: ignore[return-value]


def decode(line: Any) -> Any:
    (text,) = schema.encode_lines([line]).splitlines()
    json.loads(text)
    decoded, unknown = schema.decode_line(text)
    assert not unknown
    return decoded


@given(fields=fields, error=st.none() | st.text(), name=st.text(), mark=st.booleans())
def test_every_line_decodes(
    fields: dict[str, object] | None, error: str | None, name: str, mark: bool
) -> None:
    item = raw(name=name, fields=fields, error=error, id=None if mark else 7)
    line = decode(to_line(item, as_text(name)))
    assert isinstance(line, schema.Mark if mark else schema.Phase)
    assert line.name == as_text(name)
    decode(open_line(Record._make(item), 200))


@given(
    number=st.integers(min_value=1, max_value=2**62),
    start=st.integers(min_value=0, max_value=2**62),
    dur=st.integers(min_value=0, max_value=2**60),
    task=st.none() | st.integers(min_value=1, max_value=2**31),
    parent=st.none() | st.integers(min_value=1, max_value=2**62),
    rollout=st.none() | st.just("initial") | st.integers(min_value=0, max_value=2**40),
)
def test_a_phase_without_fields_says_all_that_it_has(
    number: int, start: int, dur: int, task: int | None, parent: int | None, rollout: Any
) -> None:
    item = raw(id=number, start_ns=start, end_ns=start + dur, task=task, parent=parent, rollout=rollout)
    assert decode(to_line(item, "bucket_send")) == schema.Phase(
        id=number,
        name="bucket_send",
        start_ns=start,
        dur_ns=dur,
        tid=5,
        task=task,
        parent=parent,
        rollout=rollout,
    )


def test_columns_take_their_own_types_only() -> None:
    given: dict[str, object] = {
        "bytes": np.int64(2**40),
        "step": "first",
        "sync": 2**64,
        "engine": "e0",
        "source": 7,
        "transport": "nccl",
        "bucket": None,
    }
    line = decode(to_line(raw(fields=given), "bucket_send"))
    assert (line.bytes, line.engine, line.transport) == (2**40, "e0", "nccl")
    assert (line.step, line.sync, line.source, line.bucket) == (None, None, None, None)
    assert line.attrs == {"step": "first", "sync": str(2**64), "source": 7}


def test_attrs_keep_what_json_can_say() -> None:
    class Tensor:
        def __repr__(self) -> str:
            raise AssertionError("a device tensor was printed")

        def __int__(self) -> int:
            raise AssertionError("a device tensor was read")

        __index__ = __float__ = __int__

    given: dict[str, object] = {
        "plain": [1, 2.5, "x", None, True],
        "nested": {"a": {"b": (1, 2)}, 3: "three"},
        "numpy": np.float32(0.5),
        "tensor": Tensor(),
        "surrogate": "\udc80",
    }
    line = decode(to_line(raw(fields=given), "bucket_send"))
    assert line.attrs == {
        "plain": [1, 2.5, "x", None, True],
        "nested": {"a": {"b": [1, 2]}, "3": "three"},
        "numpy": 0.5,
        "tensor": "<test_attrs_keep_what_json_can_say.<locals>.Tensor>",
        "surrogate": "?",
    }


@pytest.mark.parametrize(
    ("value", "rollout"), [(0, 0), (np.int64(3), 3), ("initial", "initial"), (None, None)]
)
def test_rollouts(value: object, rollout: schema.Rollout) -> None:
    assert check_rollout(value) == rollout
    assert type(check_rollout(value)) is type(rollout)


@pytest.mark.parametrize("value", [-1, True, 1.0, "3", [], np.int64(-2)])
def test_no_rollouts(value: object) -> None:
    with pytest.raises(ValueError, match="rollout"):
        check_rollout(value)
