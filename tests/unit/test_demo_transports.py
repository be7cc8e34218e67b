"""The ways in which weights travel, each without Ray: right weights at the end, clear errors else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import environment

from slime_profiler_plugin.demo import DemoError, Settings
from slime_profiler_plugin.demo._model import count_bytes, init_parameters
from slime_profiler_plugin.demo._probe import probe_model
from slime_profiler_plugin.demo._proof import prove
from slime_profiler_plugin.demo._weights import checksum_tensors, engine_tensors, raw_bytes
from slime_profiler_plugin.demo.engine import Engine
from slime_profiler_plugin.demo.sync import (
    SyncReport,
    WeightsError,
    list_files,
    read_delta,
    read_shards,
    reload_engines,
    remove_old_versions,
    version_folder,
)
from slime_profiler_plugin.demo.sync._codec import decode_difference, encode_difference
from slime_profiler_plugin.demo.sync._disk import DiskSender
from slime_profiler_plugin.demo.sync._disk_delta import DeltaSender
from slime_profiler_plugin.demo.sync._files import pack_file
from slime_profiler_plugin.demo.sync._protocol import sync_fields
from slime_profiler_plugin.demo.sync._rank import SyncRank

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

# Differences


@st.composite
def versions(draw):
    """Two versions of a tensor's bytes, often equal in places, and the bytes of an element."""
    width = draw(st.sampled_from([1, 2, 4, 8]))
    old = draw(st.binary(max_size=512).map(lambda b: b[: len(b) // width * width]))
    new = draw(st.one_of(st.just(old), st.binary(min_size=len(old), max_size=len(old))))
    keep = draw(st.integers(0, len(old)))
    return np.frombuffer(old, np.uint8), np.frombuffer(old[:keep] + new[keep:], np.uint8), width


@given(versions())
def test_a_difference_turns_the_old_version_into_the_new_one(pair):
    old, new, width = pair
    before = old.copy()
    assert np.array_equal(decode_difference(old, encode_difference(old, new, width), width), new)
    assert np.array_equal(old, before)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64", "int64"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (5, 7)])
def test_every_bit_of_a_tensor_survives(dtype, shape):
    dtype = getattr(torch, dtype)
    old, new = torch.zeros(shape, dtype=dtype), torch.ones(shape, dtype=dtype)
    if dtype.is_floating_point and new.numel() > 2:
        new.view(-1)[:3] = torch.tensor([float("nan"), float("-inf"), -0.0], dtype=dtype)
    encoded = encode_difference(raw_bytes(old), raw_bytes(new), new.element_size())
    decoded = decode_difference(raw_bytes(old), encoded, new.element_size())
    assert decoded.tobytes() == raw_bytes(new).tobytes()


def test_small_changes_of_floats_take_less_than_themselves_and_none_next_to_nothing():
    old = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    new = old * (1 + 1e-4)
    plain = len(encode_difference(raw_bytes(torch.zeros_like(new)), raw_bytes(new), 4))
    assert len(encode_difference(raw_bytes(old), raw_bytes(new), 4)) < 0.7 * plain
    assert len(encode_difference(raw_bytes(old), raw_bytes(old), 4)) < 400


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda e: e[:-1], "not a whole difference"),
        (lambda e: e[:-1] + bytes([e[-1] ^ 1]), "not a whole difference"),
        (lambda _: b"", "not a whole difference"),
        (
            lambda _: encode_difference(np.zeros(4, np.uint8), np.ones(4, np.uint8), 4),
            "a difference of 4 bytes, where 8 are wanted",
        ),
    ],
)
def test_a_spoilt_difference_is_refused(spoil, told):
    old, new = np.zeros(8, np.uint8), np.arange(8, dtype=np.uint8)
    with pytest.raises(ValueError, match=told):
        decode_difference(old, spoil(encode_difference(old, new, 4)), 4)


# Over disks, all in this process


class Calls:
    """`EngineCalls` on an engine in this process."""

    def __init__(self, engine):
        self.engine = engine
        self.key = str(id(engine))

    def submit(self, method, /, *arguments):
        answer = getattr(self.engine, method)(*arguments)
        return lambda: answer


class Alone(SyncRank):
    """A rank that does not wait for others. `barriers` is its number."""

    @property
    def number(self):
        return self.barriers

    def barrier(self, fields):
        pass

    def agree(self, value, fields):  # noqa: ARG002 - as the other
        return value


def make_settings(folder, transport, trainers=1):
    return Settings(transport=transport, trainers=trainers, weights_folder=str(folder), bucket_bytes=200_000)


def fields(sync, transport):
    return sync_fields(sync, None, str(sync + 1), transport)


def rank_of(settings, parameters, number=0):
    return Alone(parameters, number, None, settings)


def change(parameters):
    with torch.no_grad():
        for value in parameters.values():
            value.mul_(1.001)


@pytest.fixture
def parameters():
    return init_parameters(0, "cpu")


@pytest.fixture
def shards(tmp_path, parameters):
    """A version written by two ranks; settings and folder."""
    settings = make_settings(tmp_path, "disk", trainers=2)
    sent = [
        DiskSender(rank_of(settings, parameters, number)).send([], fields(0, "disk")) for number in (0, 1)
    ]
    folder = version_folder(settings, "1")
    assert sum(each.bytes for each in sent) == count_bytes(parameters)
    assert sum(each.file_bytes for each in sent) == sum(p.stat().st_size for p in folder.iterdir())
    assert sum(each.buckets for each in sent) == len(list_files(folder)) > 5
    return settings, folder


def test_shards_of_two_ranks_make_the_engine_s_model_the_trainers(shards, parameters):
    settings, _ = shards
    engines = [Engine(settings, index) for index in (0, 1)]
    report = SyncReport(sync=0, source=None, weight_version="1", transport="disk", buckets=3, bytes=9)
    reload_engines([Calls(engine) for engine in engines], report)
    wanted = checksum_tensors(parameters)
    assert [checksum_tensors(e._parameters) for e in engines] == [wanted, wanted]
    assert [e.weight_version() for e in engines] == ["1", "1"]


def _lose(folder):
    list_files(folder)[2].unlink()
    return "weights-00002-of-.*: missing"


def _lose_the_last(folder):
    list_files(folder)[-1].unlink()
    return r"weights-\d+-of-.*: missing"


def _lose_all(folder):
    for path in list_files(folder):
        path.unlink()
    return "weight_v000001: there are no weights"


def _tear(folder):
    path = list_files(folder)[1]
    path.write_bytes(path.read_bytes()[:-10])
    return f"{path}: .*not fully covered"


def _empty(folder):
    path = list_files(folder)[1]
    path.write_bytes(b"")
    return f"{path}: "


def _foreign(folder):
    path = list_files(folder)[1]
    path.write_bytes(pack_file({"model.nothing": torch.zeros(1)}, {}))
    return f"{path}: model.nothing is no tensor of the model"


def _misshapen(folder):
    path = list_files(folder)[-1]
    path.write_bytes(pack_file({"model.norm.weight": torch.zeros(3)}, {}))
    return rf"{path}: model\.norm\.weight is torch\.float32 \[3\], in the model torch\.float32 \[96\]"


def _lacking(folder):
    path = list_files(folder)[0]
    tensors = safetensors.load(path.read_bytes())
    del tensors["model.tokens.weight"]
    path.write_bytes(pack_file(tensors, {}))
    return rf"{folder}: no file has model\.tokens\.weight"


@pytest.mark.parametrize(
    "spoil", [_lose, _lose_the_last, _lose_all, _tear, _empty, _foreign, _misshapen, _lacking]
)
def test_shards_that_cannot_be_loaded_are_named_and_load_nothing(shards, spoil):
    settings, folder = shards
    told = spoil(folder)
    engine = Engine(settings, 0)
    before = checksum_tensors(engine._parameters)
    engine.pause_generation({})
    with pytest.raises(WeightsError, match=told):
        engine.load_shards(fields(0, "disk"))
    assert checksum_tensors(engine._parameters) == before
    assert engine.weight_version() is None


@pytest.mark.parametrize("method", ["load_shards", "load_delta", "receive_bucket"])
def test_an_engine_that_generates_takes_no_weights(shards, method):
    with pytest.raises(RuntimeError, match="engine 3 is not paused"):
        getattr(Engine(shards[0], 3), method)({})


def test_only_versions_before_the_current_one_are_removed(tmp_path):
    settings = make_settings(tmp_path, "disk")
    for name in ("weight_v000003", "weight_v000004", "kept"):
        (tmp_path / name).mkdir()
    remove_old_versions(make_settings(tmp_path, "nccl"), "4")
    assert len(list(tmp_path.iterdir())) == 3
    remove_old_versions(settings, "4")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "weight_v000004"]


class Deltas:
    """One trainer rank and one engine that meet over disk_delta."""

    def __init__(self, folder, parameters):
        self.settings = make_settings(folder, "disk_delta")
        self.parameters = parameters
        self.engine = Engine(self.settings, 0)
        self.syncs = 0
        self.join()

    def join(self):
        """As all ranks do when the world is made anew."""
        self._sender = DeltaSender(rank_of(self.settings, self.parameters))

    def sync(self):
        sent = self._sender.send([Calls(self.engine)], fields(self.syncs, "disk_delta"))
        self.syncs += 1
        assert checksum_tensors(self.engine._parameters) == checksum_tensors(self.parameters)
        assert self.engine.weight_version() == str(self.syncs)
        assert sent.bytes == count_bytes(self.parameters)
        folder = version_folder(self.settings, str(self.syncs))
        assert sent.file_bytes == sum(path.stat().st_size for path in folder.iterdir())
        return sent


@pytest.fixture
def deltas(tmp_path, parameters):
    return Deltas(tmp_path, parameters)


def test_the_first_version_is_whole_and_the_next_ones_are_differences(deltas):
    first = deltas.sync()
    change(deltas.parameters)
    second, third = deltas.sync(), deltas.sync()
    assert [each.baseline for each in (first, second, third)] == [True, False, False]
    assert first.file_bytes > second.file_bytes > third.file_bytes
    assert third.file_bytes < 0.05 * third.bytes  # nothing had changed


@pytest.mark.parametrize("event", ["restarted", "older", "new world"])
def test_whoever_lacks_the_last_version_gets_whole_weights(deltas, event):
    deltas.sync()
    old = {name: tensor.clone() for name, tensor in engine_tensors(deltas.engine._parameters).items()}
    change(deltas.parameters)
    deltas.sync()
    if event == "restarted":
        deltas.engine = Engine(deltas.settings, 0)
    elif event == "older":
        deltas.engine._load(old, "1")
    else:
        deltas.join()
    change(deltas.parameters)
    assert deltas.sync().baseline
    assert not deltas.sync().baseline


def test_a_difference_to_another_version_is_refused(deltas):
    deltas.sync()
    change(deltas.parameters)
    deltas.sync()
    folder = version_folder(deltas.settings, "2")
    told = r"weights-00000-of-.*: a difference to weight version 1, here is None"
    with pytest.raises(WeightsError, match=told):
        read_delta(folder, deltas.engine._parameters, None)


@pytest.mark.parametrize("spoil", [_lose, _tear, _foreign, _lacking])
def test_differences_that_cannot_be_applied_are_named(deltas, spoil):
    deltas.sync()
    folder = version_folder(deltas.settings, "1")
    told = spoil(folder)
    with pytest.raises(WeightsError, match=told):
        read_delta(folder, deltas.engine._parameters, None)


def test_a_difference_that_is_torn_inside_a_whole_file_is_named(deltas):
    deltas.sync()
    path = list_files(version_folder(deltas.settings, "1"))[-1]
    path.write_bytes(pack_file({"model.norm.weight": torch.zeros(9, dtype=torch.uint8)}, {}))
    with pytest.raises(WeightsError, match=rf"{path}: model\.norm\.weight: not a whole difference"):
        read_delta(path.parent, deltas.engine._parameters, None)


def test_what_an_engine_fetched_is_gone_when_it_is_loaded(deltas, tmp_path, monkeypatch):
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(fetched))
    deltas.sync()
    assert list(fetched.iterdir()) == []


def test_shards_read_back_are_equal(shards, parameters):
    tensors = read_shards(shards[1], init_parameters(5, "cpu"))
    assert all(torch.equal(tensors[name], value) for name, value in engine_tensors(parameters).items())


# Over ipc, between two processes


def test_shared_memory_is_handed_over_without_a_copy_and_is_gone_afterwards():
    script = Path(__file__).with_name("ipc_handover.py")
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["received"] == told["sent"]
    assert len(told["sent"]) == 28
    assert set(told["changed"]) == {-7.0}
    assert set(told["during"]) == {1}
    assert told["after"] == []


# The proof


@pytest.fixture
def models(parameters):
    """Trainer, and engines that were brought to its weights; what each said before."""
    engines = [init_parameters(seed, "cpu") for seed in (1, 2)]
    before = [probe_model(engine, Settings()) for engine in engines]
    for engine in engines:
        for name, tensor in engine_tensors(engine).items():
            tensor.copy_(engine_tensors(parameters)[name])
    return parameters, engines, before


def _prove(models, transport, sizes):
    parameters, engines, before = models
    reports = [
        SyncReport(sync=4, source=None, weight_version="5", transport=transport, buckets=1, bytes=size)
        for size in sizes
    ]
    after = [probe_model(engine, Settings()) for engine in engines]
    return prove(reports, count_bytes(parameters), before, after, [probe_model(parameters, Settings())])


@pytest.mark.parametrize("bit", [0, 7])
def test_a_single_wrong_bit_in_one_engine_is_found_and_named(models, bit):
    parameters, engines, _ = models
    whole = [count_bytes(parameters)]
    assert _prove(models, "nccl", whole).tensors == 28
    engines[1]["blocks.2.mlp.up"].detach().view(-1).view(torch.uint8)[4001] ^= 1 << bit
    told = (
        "after sync 4 engine 1 has other weights than trainer 0 in 1 tensors, "
        r"model\.layers\.2\.mlp\.up\.weight first"
    )
    with pytest.raises(DemoError, match=told):
        _prove(models, "nccl", whole)


@pytest.mark.parametrize(
    ("transport", "parts", "right"),
    [
        ("nccl", [1], True),
        ("disk", [0.5, 0.5], True),
        ("disk", [1, 1], False),
        ("ipc", [1, 1], True),
        ("ipc", [1], False),
        ("ipc", [0.5, 0.5], False),
    ],
)
def test_bytes_are_those_of_the_model_over_ipc_once_per_engine(models, transport, parts, right):
    sizes = [int(part * count_bytes(models[0])) for part in parts]
    if right:
        assert len(_prove(models, transport, sizes).reports) == len(parts)
    else:
        with pytest.raises(DemoError, match=f"sync 4 sent {sizes[0]}"):
            _prove(models, transport, sizes)
