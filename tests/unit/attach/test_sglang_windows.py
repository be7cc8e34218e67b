"""Windows of engines, against a small server that stands for SGLang's endpoint."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from recordings import Recording, read_file, record_files

from slime_profiler_plugin import timeline
from slime_profiler_plugin.attach import _doctor
from slime_profiler_plugin.attach._wrap import Bound
from slime_profiler_plugin.attach.sglang import _exports
from slime_profiler_plugin.attach.sglang._place import describe
from slime_profiler_plugin.attach.sglang._window_id import window_id
from slime_profiler_plugin.attach.sglang.windows import EngineWindows


class Endpoint(ThreadingHTTPServer):
    """Keeps what it was asked; `statuses` are its answers by path, 200 else."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []
        self.statuses = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        self.send_response(self.server.statuses.get(self.path, 200))
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def engines():
    made = [Endpoint(), Endpoint()]
    yield made
    for endpoint in made:
        endpoint.shutdown()
        endpoint.server_close()


@pytest.fixture
def start(tmp_path, monkeypatch):
    for name in ("SLIME_PROFILER", "SLIME_COMMUNICATION_TIMELINE", "SLIME_PROFILER_OUT"):
        monkeypatch.delenv(name, raising=False)

    def begin(**profiler):
        settings = {"activities": ["cpu", "cuda"], "roles": ["engine"], **profiler}
        chosen = {"out": str(tmp_path), "outputs": {"nvtx": False}, "profiler": settings}
        timeline.start(chosen, run_id="run", role="rollout_manager")

    return begin


def drops(tmp_path):
    timeline.mark("seen")
    timeline.stop()
    (file,) = record_files(tmp_path)
    return [(drop.what, drop.reason) for drop in Recording(read_file(file)).drops]


def test_first_engine_gets_one_window_with_few_steps_and_no_stacks(tmp_path, engines, start):
    start(schedule={"skip_first": 1, "repeat": 1})
    windows = EngineWindows()
    urls = [engine.url for engine in engines]
    for rollout in (3, 4, 4, 5):
        windows.on_rollout(rollout, urls)
    windows.close()
    (started, stopped) = engines[0].asked
    assert engines[1].asked == []
    assert stopped == ("/stop_profile", {})
    assert started == (
        "/start_profile",
        {
            "output_dir": str(tmp_path / "run" / "traces" / "rollout_000004" / "engine_0000"),
            "profile_id": "slime_profiler-rollout_000004-engine_0000",
            "num_steps": 20,
            "activities": ["CPU", "GPU"],
            "with_stack": False,
            "record_shapes": False,
            "merge_profiles": False,
        },
    )
    assert drops(tmp_path) == []


def test_a_window_that_the_driver_asks_for(tmp_path, engines, start):
    start(schedule=None, trigger={})
    asked = {"rollout": 6, "asked_in": 3, "took_ns": 2, "p95_ns": 1, "syncs": 20, "at_unix_ns": 3}
    folder = tmp_path / "run" / "trigger"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "attempt-000.000.json").write_text(json.dumps(asked) + "\n")
    windows = EngineWindows()
    for rollout in range(4, 8):
        windows.on_rollout(rollout, [engine.url for engine in engines])
        timeline.flush()
    windows.close()
    assert [path for path, _ in engines[0].asked] == ["/start_profile", "/stop_profile"]
    assert engines[0].asked[0][1]["profile_id"] == "slime_profiler-rollout_000006-engine_0000"
    assert engines[1].asked == []
    assert drops(tmp_path) == []


def test_each_engine_has_its_own_folder_and_id(engines, start):
    start(ranks="all")
    windows = EngineWindows()
    windows.on_rollout(0, [engine.url for engine in engines])
    windows.close()
    told = [(engine.asked[0][1]["output_dir"], engine.asked[0][1]["profile_id"]) for engine in engines]
    assert [folder.rsplit("/", 1)[1] for folder, _ in told] == ["engine_0000", "engine_0001"]
    assert len({name for _, name in told}) == 2


def test_a_window_ends_before_the_next_begins(tmp_path, engines, start):
    start(schedule={"repeat": 0})
    engines[0].statuses["/stop_profile"] = 500  # what SGLang says when it has ended by itself
    windows = EngineWindows()
    for rollout in (0, 1):
        windows.on_rollout(rollout, [engines[0].url])
    windows.close()
    assert [path for path, _ in engines[0].asked] == [
        *("/start_profile", "/stop_profile", "/start_profile", "/stop_profile")
    ]
    assert drops(tmp_path) == []


def test_too_long_an_export_is_refused_unless_forced(tmp_path, engines, start):
    start(engine={"num_steps": 1000})
    windows = EngineWindows()
    windows.on_rollout(0, [engines[0].url])
    windows.close()
    assert engines[0].asked == []
    assert any("expected to take 300 s" in reason for _, reason in drops(tmp_path))


def test_force_opens_it_all_the_same(engines, start):
    start(engine={"num_steps": 1000, "force": True})
    windows = EngineWindows()
    windows.on_rollout(0, [engines[0].url])
    windows.close()
    assert engines[0].asked[0][1]["num_steps"] == 1000


@pytest.mark.parametrize("profiler", [{"roles": ["actor"]}, None])
def test_nothing_is_asked_of_engines_unless_they_are_named(engines, start, profiler):
    if profiler is not None:
        start(**profiler)
    windows = EngineWindows()
    windows.on_rollout(0, [engines[0].url])
    windows.close()
    assert engines[0].asked == []


def test_engines_that_refuse_or_are_gone_are_counted(tmp_path, engines, start):
    start(ranks="all")
    engines[0].statuses["/start_profile"] = 403
    windows = EngineWindows()
    windows.on_rollout(0, [engines[0].url, "http://127.0.0.1:9"])
    windows.close()
    assert sum("engine windows" in what for what, _ in drops(tmp_path)) >= 1


class Manager:
    """Stands for SGLang's `SchedulerProfilerManager`, which writes a file named after id and rank."""

    def __init__(self, folder, profile_id):
        self.torch_profiler_output_dir = str(folder)
        self.profile_id = profile_id
        self.metadata = {}
        self.torch_profiler = SimpleNamespace(add_metadata_json=self.metadata.__setitem__)

    def stop(self, folder, *names):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_text("{}")
        return "stopped"


def test_a_window_of_ours_gets_its_place_and_says_whose_it_is(tmp_path, start):
    start()
    timeline.set_identity(role="engine", rank=1, ranks={"tp": 1}, world_size=12)
    name = window_id(4, 0)
    folder = tmp_path / "run" / "traces" / "rollout_000004" / "engine_0000"
    manager = Manager(folder, name)
    names = (f"{name}-TP-1-EP-1.trace.json.gz", f"{name}-TP-11-EP-1.trace.json.gz")
    _exports.around_start(lambda: None, Bound((manager,), {}))
    assert _exports.around_stop(lambda: manager.stop(folder, *names), Bound((manager,), {})) == "stopped"
    told = json.loads(manager.metadata["slime_profiler"])
    assert (told["run_id"], told["role"], told["rank"], len(told["clock_pairs"])) == ("run", "engine", 1, 2)
    assert json.loads(manager.metadata["slime_profiler_rollouts"]) == [4]
    (placed,) = folder.parent.glob("engine-1.*.pt.trace.json.gz")
    assert [path.name for path in folder.iterdir()] == [names[1]]
    assert placed.name.split(".")[1] == str(told["clock_pairs"][0][1])


def test_anyone_elses_window_stays_where_it_is(tmp_path, start):
    start()
    timeline.set_identity(role="engine", rank=0, ranks={"tp": 0}, world_size=1)
    folder = tmp_path / "theirs"
    manager = Manager(folder, "1764556417.3")
    stop = lambda: manager.stop(folder, "1764556417.3-TP-0.trace.json.gz")  # noqa: E731
    assert _exports.around_stop(stop, Bound((manager,), {})) == "stopped"
    assert [path.name for path in folder.iterdir()] == ["1764556417.3-TP-0.trace.json.gz"]
    assert "slime_profiler" in manager.metadata
    assert "slime_profiler_rollouts" not in manager.metadata


def test_ranks_of_replicas_and_of_attention_in_data_parallel():
    parallel = SimpleNamespace(
        tp_rank=1, tp_size=2, pp_rank=0, pp_size=1, dp_rank=1, dp_size=2, moe_ep_rank=1
    )
    told = describe(parallel, SimpleNamespace(enable_dp_attention=False, node_rank=1))
    assert (told["rank"], told["world_size"]) == (3, 4)
    assert told["ranks"] == {"tp": 1, "pp": 0, "dp": 1, "ep": 1}
    assert told["engine"]["node_rank"] == 1
    told = describe(parallel, SimpleNamespace(enable_dp_attention=True))
    assert (told["rank"], told["world_size"]) == (1, 2)


TOO_LONG = "the export of 200 steps is expected to take 60 s, and an engine that is silent for 30 s is killed"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("roles: [actor]", None),
        ("roles: [engine]", "20 steps, whose export is expected to take 6 s"),
        (
            "{roles: [engine], engine: {num_steps: 200}}",
            f"refused: {TOO_LONG}",
        ),
    ],
)
def test_the_doctor_says_what_becomes_of_windows(tmp_path, settings, told):
    config = tmp_path / "config.yaml"
    text = settings if settings.startswith("{") else f"{{{settings}}}"
    config.write_text(f"profiler: {text}\n")
    assert _doctor._describe_windows({"SLIME_PROFILER": str(config)}) == told
