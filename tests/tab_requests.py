"""Requests to the back end of the TensorBoard tab, made as TensorBoard's server makes them."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

HOST = "localhost:6006"
#: A run of `write_synthetic_run`, and one rollout of it.
RUN = {"run": "synthetic", "attempt": 0}
ROLLOUT = {**RUN, "rollout": 1}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Get = Callable[..., Answer]


def make_get(log_folder: Path, *, host: str | None = None, bind_all: bool = False) -> Get:
    base_plugin = pytest.importorskip("tensorboard.plugins.base_plugin", exc_type=ImportError)
    from slime_tb_plugin.plugin import TimelinePlugin

    flags = argparse.Namespace(host=host, bind_all=bind_all)
    plugin = TimelinePlugin(base_plugin.TBContext(logdir=str(log_folder), flags=flags))
    apps = plugin.get_plugin_apps()

    def get(route: str, query: str | dict[str, Any] = "", **environ: str) -> Answer:
        app = apps.get(route) or apps[f"/{route.split('/')[1]}/*"]
        told: list[Any] = []
        text = query if isinstance(query, str) else urlencode(query)
        body = app(
            {
                "REQUEST_METHOD": "GET",
                "HTTP_HOST": HOST,
                "QUERY_STRING": text,
                "PATH_INFO": f"/data/plugin/{plugin.plugin_name}{route}",
                **environ,
            },
            lambda status, headers: told.extend((status, headers)),
        )
        joined = b"".join(body)
        if hasattr(body, "close"):
            body.close()
        headers = dict(told[1])
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src" in headers["Content-Security-Policy"]
        assert int(headers["Content-Length"]) == len(joined)
        return Answer(int(told[0].split()[0]), headers, joined)

    return get


def merge(get: Get, query: dict[str, Any]) -> dict[str, Any]:
    told = get("/merge/start", query).json
    while told["state"] in ("waiting", "running"):
        time.sleep(0.02)
        told = get("/merge/progress", query).json
    return told
