"""``slime-profiler report`` and ``sql``: formats, exit codes, messages."""

from __future__ import annotations

import csv
import io
import json
import runpy
import sys
from pathlib import Path

import pytest
from command_line import run as call
from planted_run import ROLLOUTS, write_planted_run

pytest.importorskip("duckdb")

from slime_profiler_plugin.analyze import DEFAULT_VIEWS, TABLES, VIEWS, RunTables
from slime_profiler_plugin.testing import ProcessFile

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return write_planted_run(tmp_path / "runs")


def test_a_report_prints_its_views_and_tells_of_the_cache(run):
    done = call("report", run)
    assert done.exit_code == 0
    for view in DEFAULT_VIEWS:
        assert f"{view}\n" in done.stdout
    assert "tables: 7 files read, 0 unchanged" in done.stderr


def test_json_says_what_every_column_is(run):
    done = call("report", run, "--view", "sync", "--rollout", "1:3", "--format", "json")
    view = json.loads(done.stdout)["views"]["sync"]
    assert [row["sync"] for row in view["rows"]] == [1, 2]
    assert [column["name"] for column in view["columns"]] == list(view["rows"][0])
    assert all(column["how"] for column in view["columns"])
    with RunTables(run) as tables:
        assert tables.view("sync", ["1", "2"]).records() == view["rows"]


def test_csv_and_markdown_have_a_row_each(run):
    done = call("report", run, "--view", "bucket", "--format", "csv")
    assert len(list(csv.DictReader(io.StringIO(done.stdout)))) == 2 * ROLLOUTS
    done = call("report", run, "--view", "bucket", "--format", "markdown")
    assert sum(line.startswith("|") for line in done.stdout.splitlines()) == 2 * ROLLOUTS + 2
    assert call("report", run, "--format", "csv").exit_code == 2


def test_sql_prints_an_answer(run):
    done = call("sql", run, "SELECT name, count(*) AS n FROM phases WHERE name = 'weight_sync' GROUP BY ALL")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[1:3] == ["name         n", f"weight_sync  {ROLLOUTS}"]
    done = call(
        "sql", run, "SELECT 1::DECIMAL(4,2) AS a, DATE '2026-01-01' AS b, [1] AS c", "--format", "json"
    )
    assert json.loads(done.stdout)["views"]["sql"]["rows"] == [{"a": 1.0, "b": "2026-01-01", "c": [1]}]


def test_every_column_that_was_asked_for_is_shown(run):
    query = (
        "SELECT 0 AS zero, NULL AS nothing, false AS untrue, 'x' AS text, 1e-7 AS small, -0.0::DOUBLE AS none"
    )
    shown = call("sql", run, query).stdout.splitlines()
    assert shown[1].split() == ["zero", "nothing", "untrue", "text", "small", "none"]
    assert shown[2].split() == ["0", "-", "no", "x", "1e-07", "0.000"]
    shown = call("sql", run, query, "--format", "markdown").stdout.splitlines()
    assert shown[-2] == "| 0 | - | no | x | 1e-07 | 0.000 |"


def test_columns_of_one_name_are_told_apart(run):
    done = call("sql", run, "SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a", "--format", "json")
    assert json.loads(done.stdout)["views"]["sql"]["rows"] == [{"a": 1, "a_2": 2, "a_1": 3, "a_3": 4}]


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_an_answer_without_rows_says_so(run, form):
    done = call("sql", run, "SELECT name, dur_ns FROM phases WHERE false", "--format", form)
    assert (done.exit_code, done.stdout.split("\n")[-3]) == (0, "no rows")
    for path in run.glob("records/*/*"):
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(line for line in lines if b'"sync"' not in line))
    done = call("report", run, "--view", "sync", "--format", form)
    assert (done.exit_code, "no rows" in done.stdout) == (0, True)


@pytest.mark.parametrize("query", ["", " ", "-- nothing", ";"])
def test_a_query_that_asks_for_nothing_is_refused(run, query):
    done = call("sql", run, "--", query)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "slime-profiler: the query asks for nothing\n"


def test_the_place_of_a_mistake_stands_below_it(run):
    told = call("sql", run, "SELECT host, nam FROM processes").stderr.splitlines()
    assert told[0].startswith("slime-profiler: Binder Error: ")
    line, mark = told[-2:]
    assert line[mark.index("^") :] == "nam FROM processes"


def test_exit_codes(run, tmp_path):
    assert call("report", tmp_path / "runs").exit_code == 1
    assert call("report", tmp_path / "absent").exit_code == 1
    assert call("report", run, "--rollout", "99").exit_code == 1
    assert call("report", run, "--rollout", "x y").exit_code == 2
    assert call("sql", run, "SELECT").exit_code == 2
    path = next(run.glob("records/*/*"))
    path.write_bytes(path.read_bytes() + b"{bad\n")
    done = call("report", run)
    assert done.exit_code == 3
    assert f"cannot be read: {path}:" in done.stderr


def test_without_duckdb_the_message_names_the_extra(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    for arguments in (["report", run], ["sql", run, "SELECT 1"]):
        done = call(*arguments)
        assert done.exit_code == 1
        assert "slime-profiler-plugin[analyze]" in done.stderr


def test_names_from_a_trace_stay_in_their_cell_and_on_their_line(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    process = ProcessFile("odd", pid=3, role="actor", rank=0, host="=1+1")
    process.phase("a|b\n<img onerror>\x1b[31m", 0, 10, rollout=0)
    process.write(tmp_path)
    text = call("report", tmp_path / "odd", "--view", "ranks").stdout
    assert "\x1b" not in text
    marked = call("report", tmp_path / "odd", "--view", "ranks", "--format", "markdown").stdout
    assert "<img" not in marked
    assert "a\\|b" in marked
    (row,) = csv.DictReader(
        io.StringIO(call("report", tmp_path / "odd", "--view", "ranks", "--format", "csv").stdout)
    )
    assert row["host"] == "'=1+1"


def test_markdown_and_a_spreadsheet_obey_nothing_in_a_name(run):
    odd = (
        "SELECT '[x](y) ![](z) *b* &lt; \x9b\x1b[31m' AS \"a|b<i>\", "
        "'\n=1' AS c, '\uff1d1' AS d, '\u202e' AS e"
    )
    shown = call("sql", run, odd, "--format", "markdown").stdout
    assert "| a\\|b&lt;i> | c | d | e |" in shown
    assert "| \\[x\\](y) !\\[\\](z) \\*b\\* &amp;lt; \\x9b\\x1b\\[31m |  =1 |" in shown
    (row,) = csv.DictReader(io.StringIO(call("sql", run, odd, "--format", "csv").stdout))
    assert (row["c"], row["d"]) == ("'\n=1", "'\uff1d1")
    shown = call("sql", run, odd, "--format", "json").stdout
    assert not set(shown) & set("\x9b\x1b\u202e")
    (told,) = json.loads(shown)["views"]["sql"]["rows"]
    assert told["e"] == "\u202e"


def test_the_tables_are_as_documented(run):
    with RunTables(run) as tables:
        for name, columns in TABLES.items():
            answer = tables.sql(f"SELECT * FROM {name} LIMIT 1")
            assert [column.name for column in answer.columns] == [column.name for column in columns]
        assert {view.name for view in map(tables.view, VIEWS)} == set(VIEWS)


def test_the_page_of_columns_is_as_the_code_says():
    update = runpy.run_path(str(ROOT / "docs" / "update_tables.py"))
    page = update["PAGE"].read_text()
    assert page == update["updated"](page), "python docs/update_tables.py"
