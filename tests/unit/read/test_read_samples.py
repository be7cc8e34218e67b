"""Traces of samples that slime dumped: what is read of them, and that nothing in them is run."""

import os
import zipfile

import msgspec
import numpy as np
import pytest

from slime_profiler_plugin.read import ReadError, TraceRefusedError, discover, open_trace, read_pieces

torch = pytest.importorskip("torch")

from sample_dumps import AT, event, sample, save, span  # noqa: E402 - it needs torch


def read(path):
    damage = []
    events = [each for piece in read_pieces(open_trace(path), damage) for each in piece]
    return events, [(d.kind, d.reason, d.lost) for d in damage]


def args(made):
    return msgspec.json.decode(made.args)


def test_span_is_a_slice_of_its_sample_with_the_attrs_of_both_ends(tmp_path):
    end = {"n": 2, "tokens": np.float32(1.5), "error_type": "ValueError", "error_message": "no reward"}
    events = span("generate", AT, AT + 0.5, "a", {"n": 1, "url": "x"}, end)
    path = save(tmp_path / "rollout_3.pt", [sample(5, events)])
    (named, made), damage = read(path)
    assert damage == []
    assert msgspec.json.decode(named.args) == {"name": "group 1 · sample 5"}
    assert (made.ph, bytes(made.ts), bytes(made.dur)) == ("X", b"1790000000000000.000", b"500000.000")
    told = args(made)
    assert told["attrs"] == {
        "n": 1,
        "n (end)": 2,
        "url": "x",
        "tokens": 1.5,
        "error_type": "ValueError",
        "error_message": "no reward",
    }
    assert told["error"] == "ValueError: no reward"
    assert (told["sample"], told["group"], told["attempt"], told["span_id"]) == (5, 1, 0, "a")


def test_what_has_no_other_end_or_no_time_is_given_as_what_it_is(tmp_path):
    events = [
        event("span_start", "open", AT, "a"),
        event("span_end", "stray", AT + 1, "b"),
        event("event", "note", AT + 2),
        event("event", "nan", float("nan")),
        event("event", "word", "yesterday"),
        event("span_start", "no id", AT),
        *span("ends at no time", AT, float("inf"), "c"),
    ]
    made, damage = read(save(tmp_path / "r.pt", [sample(0, events)]))
    assert damage == []
    found = {msgspec.json.decode(e.name): (e.ph, e.ts is not msgspec.UNSET) for e in made[1:]}
    assert found == {
        "open": ("B", True),
        "stray": ("E", True),
        "note": ("i", True),
        "nan": ("i", False),
        "word": ("i", False),
        "no id": ("B", True),
        "ends at no time": ("E", False),  # after its start, which is a "B"
    }
    assert len(made) == 1 + 8


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([sample(0, [event("event", "a", AT)]), {"index": 1, "trace": None}, {"index": 2}],
         ("unread", "2 of 3 samples have no trace", 0)),
        ([sample(0, [event("event", "a", AT)]), "text", {"trace": 5}, sample(1, "events")],
         ("corrupt", "3 of 4 samples are none", 3)),
        ([sample(0, [event("event", "a", AT), 7, None])], ("corrupt", "2 events are none", 2)),
        ([sample(0, [event("event", "a", AT), event("new", "b", AT)])],
         ("unread", "1 events of type new are not read", 0)),
        ([sample(0, [event("event", "a", AT), event(["x"], "b", AT)])],
         ("unread", "1 events of type ['x'] are not read", 0)),
    ],
)  # fmt: skip
def test_what_is_no_sample_or_no_event_is_told(tmp_path, samples, expected):
    made, damage = read(save(tmp_path / "r.pt", samples))
    assert damage == [expected]
    assert [msgspec.json.decode(e.name) for e in made if e.ph != "M"] == ["a"]


def test_values_of_attrs_are_plain_and_bounded(tmp_path):
    attrs = {
        "tensor": torch.ones(2, 3),
        "array": np.arange(4),
        "scalar": np.int64(7),
        "nan": float("nan"),
        "huge": 2**70,
        "long": "x" * 10_000,
        "bytes": b"abc",
        3: (1, None, True),
        "many": list(range(5000)),
    }
    made, damage = read(save(tmp_path / "r.pt", [sample(0, [event("event", "a", AT, attrs=attrs)])]))
    assert damage == []
    told = args(made[1])["attrs"]
    assert (told["tensor"], told["array"], told["scalar"]) == ("Tensor (2, 3)", "ndarray (4,)", 7)
    assert (told["nan"], told["huge"], told["bytes"], told["3"]) == (
        "nan", hex(2**70), "bytes (3)", [1, None, True],
    )  # fmt: skip
    assert told["long"].endswith("… 5904 more characters")
    assert len(told["many"]) < 1001
    assert told["many"][-1].endswith(" more")


@pytest.mark.parametrize(
    ("name", "rollout", "called"),
    [
        ("rollout_3.pt", 3, "samples of rollout 3"),
        ("eval_300.pt", 300, "eval samples of rollout 300"),
        ("retrieval_3.pt", 70_000, "samples of rollout 70000"),
        ("a.pt", "x", "samples of a"),
    ],
)
def test_rollout_is_read_from_the_first_bytes(tmp_path, name, rollout, called):
    trace = open_trace(save(tmp_path / name, [sample(0, [])], rollout))
    assert (trace.format, trace.owner.detail) == ("samples", called)


class Hostile:
    """Runs a command when it is unpickled by who trusts it."""

    def __init__(self, made):
        self.made = made

    def __reduce__(self):
        return os.mkdir, (str(self.made),)


def test_pickle_that_would_run_code_is_refused_by_name_and_not_run(tmp_path):
    path = save(tmp_path / "r.pt", [sample(0, [event("event", "a", AT, attrs=Hostile(tmp_path / "made"))])])
    with pytest.raises(TraceRefusedError, match=r"r\.pt: its pickle names \w+\.mkdir, which is not loaded"):
        read(path)
    assert not (tmp_path / "made").exists()


def test_arrays_of_objects_are_refused(tmp_path):
    path = save(tmp_path / "r.pt", [{"a": np.array([Hostile(tmp_path / "made")], dtype=object)}])
    with pytest.raises(TraceRefusedError, match=r"r\.pt: its pickle"):
        read(path)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.98])
def test_file_that_was_cut_is_refused_as_that(tmp_path, kept):
    path = save(tmp_path / "r.pt", [sample(i, span("a", AT, AT + 1, "a")) for i in range(20)])
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
    with pytest.raises(TraceRefusedError, match=r"r\.pt: a file of torch\.save that is truncated or corrupt"):
        open_trace(path)


def test_any_byte_may_be_wrong(tmp_path):
    whole = save(tmp_path / "r.pt", [sample(0, span("a", AT, AT + 1, "a"))]).read_bytes()
    path = tmp_path / "bad.pt"
    refused = []
    for at in range(0, 900, 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            read(path)
        except ReadError as error:
            refused.append(str(error))
    assert refused
    assert all(reason.startswith(f"{path}: ") for reason in refused)


def test_packed_members_are_refused(tmp_path):
    save(tmp_path / "r.pt", [sample(0, [])])
    with zipfile.ZipFile(tmp_path / "r.pt") as whole, zipfile.ZipFile(tmp_path / "p.pt", "w", 8) as packed:
        for name in whole.namelist():
            packed.writestr(name, whole.read(name))
    with pytest.raises(TraceRefusedError, match="packed: not read"):
        open_trace(tmp_path / "p.pt")


def test_checkpoints_are_skipped_without_being_loaded(tmp_path, monkeypatch):
    torch.save({"model": torch.ones(8)}, tmp_path / "ckpt.pt")
    torch.save([{"rollout_id": 3, "samples": []}], tmp_path / "list.pt")
    save(tmp_path / "rollout_3.pt", [sample(0, [])])
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("loaded"))
    found = discover([tmp_path])
    assert [trace.path.name for trace in found.traces] == ["rollout_3.pt"]
    told = "a file of torch.save (a checkpoint?), no samples that slime dumped"
    assert found.skipped == [(tmp_path / "ckpt.pt", told), (tmp_path / "list.pt", told)]
    assert found.damage == []


def test_samples_that_are_no_list_are_refused(tmp_path):
    path = save(tmp_path / "r.pt", {"a": 1})
    with pytest.raises(TraceRefusedError, match="it holds no list of them"):
        read(path)


def test_without_torch_it_says_what_to_install(tmp_path, monkeypatch):
    path = save(tmp_path / "r.pt", [sample(0, [])])
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(TraceRefusedError, match=r"r\.pt: .*needs torch 2\.6 or newer \(pip install torch\)"):
        open_trace(path)
