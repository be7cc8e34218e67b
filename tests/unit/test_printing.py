"""What the command line prints is text, whatever a run says of itself and wherever it is sent."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slime_profiler_plugin._show import escape_controls
from slime_profiler_plugin.testing import write_synthetic_run

#: Colours, a C1 control sequence, a made-up row, text written backwards.
EVIL = "a\x1b[31m\x9b2J\r\nfake  row\u202e"
WRITTEN_OUT = r"a\x1b[31m\x9b2J\r\nfake  row\u202e"
ASCII = ("LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0", "PYTHONIOENCODING=ascii")
ENCODINGS = (*ASCII, "PYTHONIOENCODING=utf-8", "PYTHONIOENCODING=latin-1", "LC_ALL=C.UTF-8")


def run(*arguments, stdout=subprocess.PIPE, environ=""):
    told = dict(each.split("=") for each in environ.split())
    command = [sys.executable, "-m", "slime_profiler_plugin.cli", *map(os.fspath, arguments)]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONIOENCODING"}
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env=kept | told, check=False)


@pytest.fixture
def evil(tmp_path):
    """Runs with one whose names are made to fool a terminal, and with names that are not UTF-8."""
    made = write_synthetic_run(tmp_path / "runs", run_id=EVIL, trainers=3, rollouts=6)
    (path,) = made.folder.glob("records/*/201-*")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-30]))
    odd = [made.folder.parent / "other\udcff\x1b", path.parent / "bad\udcff\n.txt"]
    try:
        for each in odd:
            each.touch()
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    (made.folder / "merged").mkdir()
    (made.folder / "merged" / "x\x1b[2J.trace.json.gz").touch()
    return made


def test_controls_are_written_out_and_all_other_text_stays():
    assert escape_controls(EVIL) == WRITTEN_OUT
    assert escape_controls("\t\x7f\u2028") == r"\t\x7f\u2028"
    assert escape_controls("actor rank 1 · größe 重み \\n") == "actor rank 1 · größe 重み \\n"


@pytest.mark.parametrize("environ", ENCODINGS)
def test_no_text_of_a_run_reaches_a_terminal_as_more_than_text(evil, environ):
    runs = evil.folder.parent
    for arguments in (("ls", runs), ("ls", evil.folder), ("merge", evil.folder), ("ls", runs / "x\x1b")):
        result = run(*arguments, environ=environ)
        assert b"Traceback" not in result.stderr
        printed = result.stdout + result.stderr
        text = printed.decode("latin-1" if "latin" in environ else "utf-8")
        assert not any(each in text.replace("\n", "") for each in EVIL[1:] if not each.isprintable())
        assert not any(line.startswith("fake") for line in text.splitlines())
        if arguments[-1] in (runs, evil.folder):
            assert result.returncode == 0
            assert WRITTEN_OUT in text
            assert "actor rank 1" in text
            assert "ended early" in text


def test_row_of_a_table_stays_one_row_and_its_columns_stay_aligned(evil):
    lines = run("ls", evil.folder.parent).stdout.decode().splitlines()
    at = lines[0].index("started")
    assert lines[1].startswith(WRITTEN_OUT + "  ")
    assert lines[1][at:].startswith("2026-")
    assert lines[-1] == r"no runs: other\udcff\x1b"


@pytest.mark.parametrize("environ", ENCODINGS)
def test_json_is_ascii_and_gives_names_back_byte_for_byte(evil, environ):
    result = run("ls", "--json", evil.folder.parent, environ=environ)
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.isascii()
    told = json.loads(result.stdout)
    assert told["runs"][0]["run_id"] == EVIL
    assert os.fsencode(told["others"][0]) == b"other\xff\x1b"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [
        ("ls",),
        ("ls", "--json"),
        ("config", "list"),
        ("config", "show", "timeline"),
        ("--help",),
        ("ls", "--help"),
    ],
)
def test_full_disk_under_the_output_is_said_in_one_line(tmp_path, arguments):
    made = write_synthetic_run(tmp_path)
    rest = (made.folder,) if arguments[0] == "ls" else ()
    with open("/dev/full", "wb") as full:
        result = run(*arguments, *rest, stdout=full)
    assert result.returncode == 1
    assert result.stderr.decode() == "slime-profiler: standard output: No space left on device\n"
