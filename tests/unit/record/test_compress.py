"""Compressing behind the training thread's back."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from slime_profiler_plugin.record import _compress
from slime_profiler_plugin.record._compress import Compressor, compress_file


def test_compresses_everything_that_waits(tmp_path: Path) -> None:
    lost: list[str] = []
    compressor = Compressor(lost.append)
    for number in range(5):
        path = tmp_path / f"{number}.json"
        path.write_bytes(b"text %d" % number * 1000)
        compressor.add(path)
    assert compressor.close(60)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{n}.json.gz" for n in range(5)]
    assert gzip.decompress((tmp_path / "3.json.gz").read_bytes()) == b"text 3" * 1000
    assert lost == []
    assert compressor.close(0)


def test_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compress, "_BLOCK_BYTES", 7)
    path = tmp_path / "a.json"
    path.write_bytes(bytes(range(256)) * 3)
    compress_file(path, lambda: False)
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == bytes(range(256)) * 3


def test_giving_up_keeps_the_file_and_leaves_no_half(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("whole")
    compress_file(path, lambda: True)
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    assert path.read_text() == "whole"


def test_close_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(_: Path, give_up: object) -> None:
        assert callable(give_up)
        while not give_up():
            pass

    monkeypatch.setattr(_compress, "compress_file", endless)
    compressor = Compressor(lambda _: None)
    compressor.add(tmp_path / "a.json")
    compressor.add(tmp_path / "b.json")
    assert not compressor.close(0.05)


def test_a_file_that_cannot_be_compressed_is_told_and_the_next_goes_on(tmp_path: Path) -> None:
    lost: list[str] = []
    compressor = Compressor(lost.append)
    good = tmp_path / "good.json"
    good.write_text("good")
    compressor.add(tmp_path / "missing.json")
    compressor.add(good)
    assert compressor.close(60)
    assert lost == ["a trace stays uncompressed: No such file or directory"]
    assert [p.name for p in tmp_path.iterdir()] == ["good.json.gz"]
