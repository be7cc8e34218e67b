"""`ls`: what it says of runs, and the words in which it says it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import Result
from command_line import run

from slime_profiler_plugin.analyze import (
    MergedFile,
    RolloutSpan,
    Sizes,
    format_bytes,
    list_runs,
    roles_table,
    run_lines,
    runs_table,
)
from slime_profiler_plugin.merge import merge_run
from slime_profiler_plugin.read import ReadError
from slime_profiler_plugin.testing import MS, ProcessFile, SyntheticRun, write_synthetic_run

S = 1000 * MS


def ls(*arguments: object, **environ: str) -> Result:
    return run("ls", *arguments, **{"SLIME_PROFILER_OUT": None, **environ})


def cells(text: str) -> list[list[str]]:
    """A printed table: columns stand at least two spaces apart."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


def lines_of(run: Path) -> list[str]:
    return list(run_lines(list_runs(run).runs[0]))


def cut(made: SyntheticRun, name: str, lines: int) -> None:
    """The process was killed so many lines before its end."""
    (path,) = made.folder.glob(f"records/*/{name}-*")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-lines]))


def test_clean_run_says_who_was_seen_and_what_it_holds(tmp_path: Path) -> None:
    made = write_synthetic_run(tmp_path)
    merge_run([made.folder], "all")
    listing = list_runs(made.folder)
    assert listing.is_run
    (run,) = listing.runs
    assert (run.run_id, run.folder) == ("synthetic", str(made.folder))
    assert run.rollouts == RolloutSpan(initial=True, first=0, last=1)
    (attempt,) = run.attempts
    assert (attempt.attempt, attempt.rollouts) == (0, run.rollouts)
    assert [(r.role, r.processes, r.seen, r.world_size, r.missing, r.endings) for r in attempt.roles] == [
        ("driver", 1, None, None, [], {"ended": 1}),
        ("actor", 2, 2, 2, [], {"ended": 2}),
        ("engine", 2, 2, 2, [], {"ended": 2}),
    ]
    assert [p.name for p in run.processes] == [
        "driver",
        "actor rank 0 · tp0 pp0 dp0",
        "actor rank 1 · tp0 pp0 dp1",
        "engine 0",
        "engine 1",
    ]
    assert {p.ending for p in run.processes} == {"ended"}
    files = sorted(made.folder.glob("merged/*"))
    sizes = {path.name: path.stat().st_size for path in files}
    assert run.merged == [
        MergedFile(
            name="initial.trace.json.gz",
            first="initial",
            last="initial",
            bytes=sizes["initial.trace.json.gz"],
        ),
        *(
            MergedFile(
                name=f"rollout_00000{r}.trace.json.gz",
                first=r,
                last=r,
                bytes=sizes[f"rollout_00000{r}.trace.json.gz"],
            )
            for r in (0, 1)
        ),
    ]
    records = sum(path.stat().st_size for path in made.folder.glob("records/*/*"))
    assert run.sizes == Sizes(records=records, traces=0, merged=sum(sizes.values()))
    assert sum(p.bytes for p in run.processes) == records
    assert (run.damage, run.ignored, listing.others) == ([], [], [])


def test_words_and_rule_of_endings_are_the_merge_s(tmp_path: Path) -> None:
    made = write_synthetic_run(tmp_path, trainers=4, rollouts=6)
    cut(made, "201", 30)
    cut(made, "202", 1)
    (made.folder / "records" / "host0" / f"203-{made.trainers[3].process.start_unix_ns}.jsonl").unlink()
    report = merge_run([made.folder], 1)
    (run,) = list_runs(made.folder).runs
    endings = {p.name: p.ending for p in report.processes}
    assert {p.name: p.ending for p in run.processes} == endings
    assert sorted(endings.values()) == ["ended"] * 4 + ["ended early", "ended with the job"]
    (actor,) = [r for r in run.attempts[0].roles if r.role == "actor"]
    assert (actor.seen, actor.world_size, actor.missing) == (3, 4, [3])
    (told,) = [r for r in report.ranks if r.role == "actor"]
    assert (told.seen, told.world_size, told.missing) == (3, 4, [3])


def test_missing_rank_and_early_end_are_said_by_name(tmp_path: Path) -> None:
    made = write_synthetic_run(tmp_path, trainers=3, rollouts=6)
    cut(made, "201", 30)
    next(made.folder.glob("records/*/202-*")).unlink()
    told = lines_of(made.folder)
    assert "  actor: 2 of 3 ranks seen; missing rank 2" in told
    assert "  actor rank 1 · tp0 pp0 dp1: ended early" in told
    table = roles_table(list_runs(made.folder).runs[0])
    assert table.columns == (
        *("attempt", "rollouts", "role", "ranks seen", "processes"),
        *("ended", "ended early"),
    )
    assert table.rows == [
        ("0", "initial, 0 to 5", "driver", "-", "1", "1", "0"),
        ("0", "initial, 0 to 5", "actor", "2 of 3", "2", "1", "1"),
        ("0", "initial, 0 to 5", "engine", "2 of 2", "2", "2", "0"),
    ]


def test_two_attempts_are_told_apart(tmp_path: Path) -> None:
    made = write_synthetic_run(tmp_path, trainers=3, attempt=1, start_ns=9_000_000 * MS, rollouts=3)
    write_synthetic_run(tmp_path, trainers=3, attempt=0)
    second = made.trainers[2].process
    (made.folder / "records" / "host0" / f"202-{second.start_unix_ns}.jsonl").unlink()
    (made.folder / "attempt-002.json").write_text("{}")
    (run,) = list_runs(made.folder).runs
    assert [(a.attempt, a.rollouts.last, len(a.roles)) for a in run.attempts] == [
        (0, 1, 3),
        (1, 2, 3),
        (2, None, 0),
    ]
    assert run.attempts[1].started_unix_ns == second.start_unix_ns
    assert run.attempts[2].started_unix_ns is None
    told = lines_of(made.folder)
    assert told[0] == "run synthetic, attempts 0, 1, 2"
    assert "  attempt 1: actor: 2 of 3 ranks seen; missing rank 2" in told
    assert "  attempt 2: nothing recorded" in told
    table = runs_table(list_runs(tmp_path))
    row = dict(zip(table.columns, table.rows[0], strict=True))
    # Of the last attempt in which any rank was seen.
    assert (row["attempts"], row["ranks seen"]) == ("3", "4 of 5")
    assert table.below == [
        ["attempt 1: actor: 2 of 3 ranks seen; missing rank 2", "attempt 2: nothing recorded"]
    ]


def test_folder_of_runs_has_the_newest_last_and_names_what_is_no_run(tmp_path: Path) -> None:
    epoch = write_synthetic_run(tmp_path, run_id="b-old", rollouts=1).driver.epoch_ns
    write_synthetic_run(tmp_path, run_id="a-new", start_ns=6_000_000 * MS)
    merge_run([tmp_path / "a-new"], (0, 2))
    ProcessFile("c-other", pid=1, start_ns=5_500_000 * MS, epoch_ns=epoch).write(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "x.log").write_text("hello")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    result = ls(tmp_path)
    assert (result.exit_code, result.stderr) == (0, "")
    head, *rows, others = cells(result.stdout)
    assert head[:3] == ["run", "started (UTC)", "attempts"]
    assert [row[0] for row in rows if len(row) > 2] == ["b-old", "c-other", "a-new"]
    assert rows[0][1:6] == ["2026-11-18 11:06", "1", "0", "4 of 4", "0"]
    made = tmp_path / "b-old"
    size = sum(path.stat().st_size for path in made.glob("records/*/*"))
    assert rows[0][6] == format_bytes(size)
    newest = next(row for row in rows if row[0] == "a-new")
    assert newest[2:6] == ["1", "0 to 1", "4 of 4", "1"]
    files = [*(tmp_path / "a-new").glob("records/*/*"), *(tmp_path / "a-new").glob("merged/*")]
    assert newest[6] == format_bytes(sum(path.stat().st_size for path in files))
    assert others == ["no runs: gone, notes, x.log"]


def test_healthy_run_is_one_line_that_fits_100_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the run's name is whole, even where nothing else fits."""
    name = "demo-20261118T110640Z-3f08f3"
    made = write_synthetic_run(tmp_path, run_id=name, trainers=64, engines=40, rollouts=12)
    merge_run([made.folder], "all")
    for columns in ("20", "100"):
        monkeypatch.setenv("COLUMNS", columns)
        head, line = ls(tmp_path).stdout.splitlines()
        assert line.split() == [
            *(name, "2026-11-18", "11:06", "1", "0", "to", "11", "104", "of", "104", "13"),
            *line.split()[-2:],
        ]
        assert len(head) <= 100
        assert len(line) <= 100


def test_rollouts_that_users_named_themselves_are_cut_short_in_the_table(tmp_path: Path) -> None:
    for run_id, names in (("a", ["initial"]), ("b", ["eval_1"]), ("c", ["initial", 3, "eval_1", "eval_2"])):
        process = ProcessFile(run_id, pid=1, role="driver")
        for at, rollout in enumerate(names):
            process.phase("generate", 10 * at + 1, 10 * at + 5, rollout=rollout)
        process.write(tmp_path)
    assert [row[3] for row in runs_table(list_runs(tmp_path)).rows] == [
        "initial",
        "eval_1",
        "3, eval_1, 1 more",
    ]


def test_json_has_exact_numbers(tmp_path: Path) -> None:
    made = write_synthetic_run(tmp_path)
    told = json.loads(ls(tmp_path, "--json").stdout)
    assert told["folder"] == str(tmp_path)
    (run,) = told["runs"]
    assert run["sizes"]["records"] == sum(p.stat().st_size for p in made.folder.glob("records/*/*"))
    assert run["started_unix_ns"] == made.driver.process.start_unix_ns
    driver = run["processes"][0]
    assert (driver["name"], driver["ending"]) == ("driver", "ended")
    assert driver["last_unix_ns"] == made.driver.lines[-1].at_ns + made.driver.epoch_ns
    alone = json.loads(ls(made.folder, "--json").stdout)
    assert (alone["is_run"], alone["runs"]) == (True, [run])


def test_damage_and_foreign_files_in_a_run_are_told_and_no_failure(tmp_path: Path) -> None:
    made = write_synthetic_run(tmp_path)
    notes = made.folder / "records" / "host0" / "notes.txt"
    notes.write_text("hello")
    empty = made.folder / "records" / "host0" / "9-9.jsonl"
    empty.write_bytes(b"")
    (made.folder / "merged").mkdir()
    (made.folder / "merged" / ".hidden.trace.json.gz").write_bytes(b"")
    (made.folder / "merged" / "picture.png").write_bytes(b"12345")
    (made.folder / "traces" / "rollout_000007").mkdir(parents=True)
    result = ls(made.folder)
    assert result.exit_code == 0
    told = result.stdout.splitlines()
    assert f"  {empty}: refused: the file is empty" in told
    assert f"  no source: {notes}" in told
    assert any(line.startswith("  rollouts initial, 0 to 7; merged -") for line in told)
    (run,) = list_runs(made.folder).runs
    assert (run.merged, run.sizes.merged) == ([], 5)
    assert "    cannot be read: 1 (slime-profiler ls RUN tells what)" in ls(tmp_path).stdout.splitlines()


def test_run_of_which_nothing_is_known_but_its_place(tmp_path: Path) -> None:
    (tmp_path / "bare" / "records").mkdir(parents=True)
    result = ls(tmp_path / "bare")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:3] == [
        "run bare, attempts -",
        "  started - UTC, last sign of life - UTC",
        "  rollouts -; merged -",
    ]
    for text in ("", "[]", '{"created_unix_ns": "x"}', '{"created_unix_ns": 99999999999999999999999999}'):
        (tmp_path / "bare" / "run.json").write_text(text)
        assert ls(tmp_path / "bare").exit_code == 0


def test_default_is_where_runs_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    missing = ls()
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert missing.stderr == "slime-profiler: runs: no such folder\n"
    write_synthetic_run("runs", run_id="here")
    write_synthetic_run("elsewhere", run_id="there")
    assert "here" in ls().stdout
    assert "there" in ls(SLIME_PROFILER_OUT="elsewhere").stdout
    assert "here" in ls("runs", SLIME_PROFILER_OUT="elsewhere").stdout


def test_nothing_to_list_exits_1(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for target, told in ((tmp_path, "no run in it"), (tmp_path / "file", "a file, not a folder")):
        result = ls(target)
        assert (result.exit_code, result.stderr) == (1, f"slime-profiler: {target}: {told}\n")
    with pytest.raises(ReadError):
        list_runs(tmp_path)


def test_many_missing_ranks_are_stretches(tmp_path: Path) -> None:
    for rank in (0, 1, 5, 9, 11):
        ProcessFile("r", pid=50 + rank, role="actor", rank=rank, world_size=1000).write(tmp_path)
    told = "actor: 5 of 1000 ranks seen; missing rank 2 to 4, 6 to 8, 10"
    assert f"  {told}, 12 to 999" in lines_of(tmp_path / "r")
    assert runs_table(list_runs(tmp_path)).below == [[f"{told}, 1 more"]]


def test_names_of_the_user_s_are_not_markup(tmp_path: Path) -> None:
    ProcessFile("[red]r[/red]", pid=1, role="[bold]", rank=0, world_size=1).write(tmp_path)
    text = ls(tmp_path).stdout
    assert "[red]r[/red]" in text
    assert "[bold]" in ls(*tmp_path.iterdir()).stdout


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (9949, "9.9 kB"),
        (9951, "10 kB"),
        (999_499, "999 kB"),
        (999_501, "1.0 MB"),
        (2 * 10**12, "2.0 TB"),
    ],
)
def test_sizes_have_about_three_digits(size: int, text: str) -> None:
    assert format_bytes(size) == text
