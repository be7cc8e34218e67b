"""Attempts: who numbers them, who joins them, and what stands in their files."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import threading
from collections import Counter
from pathlib import Path

import pytest
from surroundings import TORCHRUN, UNIX_NS, make_proc, make_process, ray_module, surroundings

from slime_profiler_plugin.identity import IdentityError, read_attempt, resolve
from slime_profiler_plugin.identity import _files as files
from slime_profiler_plugin.identity._attempt import find_launch, join_attempt
from slime_profiler_plugin.identity._place import check_place
from slime_profiler_plugin.layout import RunPaths


def test_launch_tokens_in_their_order(tmp_path: Path) -> None:
    proc = make_proc(tmp_path)
    make_process(proc, 100, parent=1, start=4242, environ={})
    slurm = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3", "SLURM_RESTART_COUNT": "1"}
    everything = TORCHRUN | slurm | {"SLIME_PROFILER_LAUNCH": "mine"}
    ray = {"ray": ray_module()}
    assert find_launch(surroundings(everything, modules=ray, proc=proc)) == "mine"
    assert find_launch(surroundings(TORCHRUN | slurm, modules=ray, proc=proc)) == "ray:session_1:01000000"
    token = "torchelastic:None:b00tb00t-1111:100:4242"
    assert find_launch(surroundings(TORCHRUN | slurm, proc=proc)) == token
    restarted = TORCHRUN | slurm | {"TORCHELASTIC_RESTART_COUNT": "2"}
    assert find_launch(surroundings(restarted, proc=proc)) == token
    several = TORCHRUN | {"GROUP_WORLD_SIZE": "2"}
    assert find_launch(surroundings(several, proc=proc)) == "torchelastic:127.0.0.1:29511"
    with_id = several | {"TORCHELASTIC_RUN_ID": "job9"}
    assert find_launch(surroundings(with_id, proc=proc)) == "torchelastic:job9"
    assert find_launch(surroundings(with_id | slurm, proc=proc)) == "torchelastic:job9:slurm:77:1"
    assert find_launch(surroundings(slurm)) == "slurm:77:3:1"
    assert find_launch(surroundings()) is None


def join(paths: RunPaths, launch: str, unique: str = "u") -> int:
    return join_attempt(paths, launch, host="h", pid=1, unix_ns=UNIX_NS, unique=unique)


def test_a_token_joins_its_attempt_and_a_new_one_takes_the_next_number(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path, "r")
    paths.root.mkdir()
    assert [join(paths, token) for token in ("a", "a", "b", "a", "c", "b")] == [0, 0, 1, 0, 2, 1]
    assert read_attempt(paths.attempt_file(1)).launch == "b"


def test_a_number_is_not_used_again_after_its_file_went(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path, "r")
    paths.root.mkdir()
    for token in "abc":
        join(paths, token)
    paths.attempt_file(0).unlink()
    assert join(paths, "d") == 3


def test_numbers_go_on_past_999(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path, "r")
    paths.root.mkdir()
    paths.attempt_file(999).write_bytes(paths_content(999, "old"))
    assert join(paths, "new") == 1000
    assert join(paths, "newer") == 1001


def paths_content(number: int, launch: str) -> bytes:
    fields = {"attempt": number, "launch": launch, "created_unix_ns": 1, "host": "h", "pid": 1}
    return json.dumps(fields).encode() + b"\n"


def test_a_stale_listing_costs_nothing_but_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = RunPaths(tmp_path, "r")
    paths.root.mkdir()
    for token in "abc":
        join(paths, token)
    monkeypatch.setattr("slime_profiler_plugin.identity._attempt._listed", lambda _paths: [])
    assert join(paths, "b") == 1
    assert join(paths, "d") == 3


def test_resolve_writes_run_and_attempt_and_never_the_environment(tmp_path: Path) -> None:
    environ = {"SLIME_PROFILER_RUN_ID": "r/1", "SECRET_TOKEN": "hunter2", "RANK": "2", "WORLD_SIZE": "4"}
    given = {"role": "actor", "ranks": {"tp": 1}, "engine": {"index": 3}}
    me = resolve(environ, given, tmp_path, settings={"out": "runs"}, here=surroundings(environ))
    assert (me.run_id, me.attempt, me.host, me.pid) == ("r/1", 0, "node7", 101)
    assert (me.role, me.rank, me.ranks, me.world_size) == ("actor", 2, {"tp": 1}, 4)
    assert (me.engine, me.clock_domain) == ({"index": 3}, "boot/time")
    assert me.incarnation == f"101-{UNIX_NS}"
    assert (me.start_ns, me.start_unix_ns, me.start_error_ns) == (5, UNIX_NS, 1)
    folder = tmp_path / "r_1"
    assert sorted(path.name for path in folder.iterdir()) == ["attempt-000.json", "run.json"]
    assert json.loads((folder / "run.json").read_text()) == {
        "run_id": "r/1",
        "origin": "environment",
        "created_unix_ns": UNIX_NS,
        "settings": {"out": "runs"},
    }
    assert json.loads((folder / "attempt-000.json").read_text()) == {
        "attempt": 0,
        "launch": "fresh:0123456789abcdef",
        "created_unix_ns": UNIX_NS,
        "host": "node7",
        "pid": 101,
    }


def test_whoever_is_handed_the_environment_joins(tmp_path: Path) -> None:
    driver = resolve({}, {"role": "driver"}, tmp_path, here=surroundings())
    child_environ = driver.shared_environ()
    child = resolve(child_environ, {}, tmp_path, here=surroundings(child_environ, pid=102))
    assert (child.run_id, child.attempt) == (driver.run_id, 0)
    assert child.incarnation != driver.incarnation


def test_two_ids_that_spell_one_folder_are_told_apart(tmp_path: Path) -> None:
    resolve({}, {"run_id": "a/b"}, tmp_path, here=surroundings())
    with pytest.raises(IdentityError, match=r"run\.json belongs to run 'a/b'"):
        resolve({}, {"run_id": "a_b"}, tmp_path, here=surroundings())


@pytest.mark.parametrize(
    ("given", "environ", "message"),
    [
        ({"rank": -1}, {}, "rank -1 is negative"),
        ({"rank": 4, "world_size": 4}, {}, "rank 4 is not below world_size 4"),
        ({"world_size": 0}, {}, "world_size 0"),
        ({"rank": "one"}, {}, "rank"),
        ({"role": "a-b"}, {}, "role 'a-b'"),
        ({"colour": "red"}, {}, "colour"),
        ({"engine": 0}, {}, r'engine: 0 is not allowed; allowed: an object such as {"index": 0}'),
        ({"ranks": [0]}, {}, r'ranks: \[0\] is not allowed; allowed: an object such as {"tp": 0, "pp": 1}'),
        ({"run_id": 7}, {}, "run_id: 7 is not allowed; allowed: text"),
        ({}, {"RANK": "two"}, "RANK='two'"),
    ],
)
def test_a_bad_place_is_refused_by_name(
    tmp_path: Path, given: dict[str, object], environ: dict[str, str], message: str
) -> None:
    with pytest.raises(IdentityError, match=message):
        resolve(environ, given, tmp_path, here=surroundings(environ))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("role", "rank", "world_size"),
    [(None, 0, 2), ("actor", 0, 2), ("critic", 0, 2), ("engine", None, None), ("driver", None, None)],
)
def test_the_environments_rank_is_a_trainers(
    tmp_path: Path, role: str | None, rank: int | None, world_size: int | None
) -> None:
    environ = {"RANK": "0", "WORLD_SIZE": "2", "SLIME_PROFILER_RUN_ID": "r"}
    given = {"role": role, "engine": {"index": 0}}
    me = resolve(environ, given, tmp_path, here=surroundings(environ))
    assert (me.role, me.rank, me.world_size, me.engine) == (role, rank, world_size, {"index": 0})
    assert me.by_environment == (frozenset() if rank is None else {"rank", "world_size"})


def test_a_bad_rank_of_others_is_not_ours(tmp_path: Path) -> None:
    environ = {"RANK": "two"}
    assert resolve(environ, {"role": "engine"}, tmp_path, here=surroundings(environ)).rank is None


@pytest.mark.parametrize(
    ("environ", "given", "warns"),
    [
        ({"SLIME_PROFILER_RUN_ID": "r"}, {"world_size": 2}, True),
        ({"SLIME_PROFILER_RUN_ID": "r", "WORLD_SIZE": "2"}, {}, True),
        ({}, {"run_id": "r", "world_size": 2}, True),
        ({"SLIME_PROFILER_RUN_ID": "r"}, {"world_size": 1}, False),
        ({"SLIME_PROFILER_RUN_ID": "r"}, {}, False),
        ({"SLIME_PROFILER_RUN_ID": "r", "SLIME_PROFILER_LAUNCH": "fresh:1"}, {"world_size": 2}, False),
        (TORCHRUN | {"SLIME_PROFILER_RUN_ID": "r"}, {}, False),
        (
            {"SLIME_PROFILER_RUN_ID": "r", "WORLD_SIZE": "2"},
            {"role": "driver"},
            False,
        ),  # it hands on its token
        ({"WORLD_SIZE": "2"}, {"role": "driver"}, False),
    ],
)
def test_one_of_several_without_a_token_is_told_of_it(
    tmp_path: Path, environ: dict[str, str], given: dict[str, object], warns: bool
) -> None:
    resolve({}, {"run_id": "r"}, tmp_path, here=surroundings())  # attempt 0
    me = resolve(environ, given, tmp_path, here=surroundings(environ))
    if not warns:
        assert me.warning is None
        return
    assert me.warning == (
        "this process is one of several of run 'r', and nothing that they share says which start of the run "
        f"this is: it counts as a start of its own, attempt {me.attempt}, and is merged apart from the "
        "others. Set SLIME_PROFILER_LAUNCH for all of them, to a value that is new at each start"
    )


def test_a_given_rank_is_not_mixed_with_another_roles_world(tmp_path: Path) -> None:
    environ = {"RANK": "0", "WORLD_SIZE": "2", "SLIME_PROFILER_RUN_ID": "r"}
    me = resolve(environ, {"role": "engine", "rank": 5}, tmp_path, here=surroundings(environ))
    assert (me.rank, me.world_size) == (5, None)


def test_the_next_incarnation_has_another_file(tmp_path: Path) -> None:
    me = resolve({}, {}, tmp_path, here=surroundings())
    assert me.next_incarnation().incarnation == f"101-{UNIX_NS + 1}"


def test_this_process_with_nothing_injected(tmp_path: Path) -> None:
    me = resolve({"SLIME_PROFILER_RUN_ID": "r"}, {}, tmp_path)
    assert me.pid == os.getpid()
    assert read_attempt(RunPaths(tmp_path, "r").attempt_file(0)).launch == me.launch


def _race(folder: str, tokens: list[str], index: int, barrier: object, results: object) -> None:
    paths = RunPaths(folder, "r")
    barrier.wait(60)  # type: ignore[attr-defined]
    numbers = [join(paths, token, f"p{index}") for token in tokens]
    results.put(numbers)  # type: ignore[attr-defined]


def test_32_processes_at_once_agree(tmp_path: Path) -> None:
    """Eight rounds; in each, every token gets one number and every number one token."""
    processes, rounds = 32, 8
    paths = RunPaths(tmp_path, "r")
    paths.root.mkdir()
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(processes), context.Queue()
    per_process = [[f"{r}-{index % 3}" for r in range(rounds)] for index in range(processes)]
    workers = [
        context.Process(target=_race, args=(str(tmp_path), tokens, index, barrier, results))
        for index, tokens in enumerate(per_process)
    ]
    for worker in workers:
        worker.start()
    joined = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    counts = Counter(number for numbers in joined for number in numbers)
    assert sorted(counts) == list(range(3 * rounds))
    members = sorted([11, 11, 10] * rounds)
    assert sorted(counts.values()) == members
    on_disk = {read_attempt(paths.attempt_file(n)).launch for n in range(3 * rounds)}
    assert on_disk == {f"{r}-{k}" for r in range(rounds) for k in range(3)}
    assert [path.name for path in paths.root.iterdir() if path.name.startswith(".")] == []


def test_nobody_sees_part_of_a_file(tmp_path: Path) -> None:
    """A reader that looks all the time finds nothing or the whole."""
    content = b"x" * 100_000 + b"\n"
    seen: set[int] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            seen.update(len(path.read_bytes()) for path in tmp_path.glob("*.json"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for number in range(50):
            assert files.create_whole(tmp_path / f"{number}.json", content, "u")
    finally:
        stop.set()
        watcher.join()
    assert seen <= {len(content)}


def test_a_link_whose_answer_got_lost_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def lose_answer(source: Path, target: Path) -> None:
        link(source, target)
        raise FileExistsError(errno.EEXIST, "asked twice")

    monkeypatch.setattr(os, "link", lose_answer)
    assert files.create_whole(tmp_path / "a.json", b"mine\n", "u")
    assert (tmp_path / "a.json").read_bytes() == b"mine\n"
    assert not files.create_whole(tmp_path / "a.json", b"yours\n", "v")


def test_a_link_that_lost_the_race_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def lose_race(source: Path, target: Path) -> None:
        target.write_bytes(b"theirs\n")
        link(source, target)

    monkeypatch.setattr(os, "link", lose_race)
    assert not files.create_whole(tmp_path / "a.json", b"mine\n", "u")
    assert files.read_whole(tmp_path / "a.json") == b"theirs\n"


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "no links here", str(source), None, str(target))

    monkeypatch.setattr(os, "link", no_links)
    assert files.create_whole(tmp_path / "a.json", b"one\n", "u")
    assert not files.create_whole(tmp_path / "a.json", b"two\n", "v")
    assert files.read_whole(tmp_path / "a.json") == b"one\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        files.create_whole(tmp_path / "a.json", b"one\n", "u")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_stays_torn_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_PATIENCE_S", 0.0)
    torn = tmp_path / "attempt-000.json"
    torn.write_bytes(b'{"attempt": 0, "laun')
    with pytest.raises(IdentityError, match=r"attempt-000\.json .* not whole"):
        read_attempt(torn)
    torn.write_bytes(b'{"attempt": "zero"}\n')
    with pytest.raises(IdentityError, match=r"attempt-000\.json: "):
        read_attempt(torn)


def test_whole_numbers_of_other_libraries_count() -> None:
    numpy = pytest.importorskip("numpy")
    place = check_place({"rank": numpy.int64(3), "world_size": 4, "ranks": {"tp": numpy.int32(1)}})
    assert (place.rank, place.ranks) == (3, {"tp": 1})
    assert type(place.rank) is int
    with pytest.raises(IdentityError, match="rank: True is not allowed"):
        check_place({"rank": True})
