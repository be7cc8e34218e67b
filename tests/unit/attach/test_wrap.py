"""Wrappers change nothing of what they are around."""

import asyncio
import importlib
import inspect
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from slime_profiler_plugin.attach import _after_import, _failures
from slime_profiler_plugin.attach._targets import Target, check_target, inspect_target
from slime_profiler_plugin.attach._wrap import states, unwrap_all, wrap
from slime_profiler_plugin.record._drops import Drops
from slime_profiler_plugin.record._guard import Guard

SOURCE = '''
import functools

calls = []

def plain(a, b=2, *, c=3):
    """Doc."""
    calls.append((a, b, c))
    if a == "raise":
        raise KeyError(a)
    return a

def many(count):
    for number in range(count):
        got = yield number
        calls.append(got)
    return "end"

async def later(value):
    calls.append(value)
    if value == "raise":
        raise KeyError(value)
    return value

class Adder:
    def __call__(self, x):
        return x + 1

class Base:
    def inherited(self, x):
        return x

class Thing(Base):
    def method(self, x):
        return self, x
    @staticmethod
    def still(x):
        return x
    @classmethod
    def of_class(cls, x):
        return cls, x
    fixed = functools.partialmethod(method, 7)
    adder = Adder()
    size = len
    still_adder = staticmethod(Adder())
    @property
    def made(self):
        return self.method

adder = Adder()
cached = functools.lru_cache(plain)
from_the_start = plain
'''


@pytest.fixture
def name(tmp_path, monkeypatch):
    (tmp_path / "wrapped_example.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "wrapped_example"
    unwrap_all()
    sys.modules.pop("wrapped_example", None)


def target(name, qualified, parameters=None):
    return Target("example", name, qualified, parameters, ("nothing",))


def noting(seen, before=None, after=None):
    def around(call, bound):
        seen.append(bound)
        if before:
            raise before
        call()
        if after:
            raise after

    return around


@pytest.mark.parametrize("imported", [False, True], ids=["before the import", "after it"])
def test_result_arguments_and_signature_stay(name, imported):
    if imported:
        importlib.import_module(name)
    seen = []
    wrap(target(name, "plain", ("a", "c")), noting(seen))
    module = importlib.import_module(name)
    assert module.plain("x", c=5) == "x"
    assert (module.calls, seen) == ([("x", 2, 5)], [(("x",), {"c": 5})])
    assert str(inspect.signature(module.plain)) == "(a, b=2, *, c=3)"
    assert inspect.getfullargspec(module.plain) == inspect.getfullargspec(module.from_the_start)
    assert (module.plain.__doc__, module.plain.__name__) == ("Doc.", "plain")
    assert [state.status for state in states()] == ["attached"]
    assert not any("attach" in type(finder).__module__ for finder in sys.meta_path)
    assert type(module.__loader__).__name__ == type(module.__spec__.loader).__name__ == "SourceFileLoader"


@pytest.mark.parametrize("failing", [{"before": ValueError("ours")}, {"after": ValueError("ours")}])
def test_a_failure_of_ours_is_told_once_and_the_call_is_made_once(name, failing, caplog, monkeypatch):
    guard = Guard(Drops())
    monkeypatch.setattr(_failures, "_idle", lambda: guard)
    seen = []
    wrap(target(name, "plain"), noting(seen, **failing))
    module = importlib.import_module(name)
    assert [module.plain(1), module.plain(2)] == [1, 2]
    assert [call[0] for call in module.calls] == [1, 2]
    assert len(seen) == 1
    assert caplog.text.count("ours") == 1


def test_what_around_returns_swallows_or_forgets_changes_nothing(name):
    def swallowing(call, _bound):
        try:
            call()
        except KeyError:
            return "no error at all"
        return "another result"

    wrap(target(name, "plain"), swallowing)
    module = importlib.import_module(name)
    assert module.plain(1) == 1
    with pytest.raises(KeyError, match="raise"):
        module.plain("raise")
    unwrap_all()
    wrap(target(name, "plain"), lambda _call, _bound: None)
    assert [module.plain(2), module.plain(3)] == [2, 3]
    assert [call[0] for call in module.calls] == [1, "raise", 2, 3]


def test_exceptions_of_theirs_pass_through_as_they_are(name):
    wrap(target(name, "plain"), noting([]))
    module = importlib.import_module(name)
    with pytest.raises(KeyError) as caught:
        module.plain("raise")
    assert caught.value.__context__ is None
    assert len(module.calls) == 1


def test_methods_of_every_kind(name):
    seen = []
    for qualified in ("Thing.method", "Thing.still", "Thing.of_class", "Thing.inherited"):
        wrap(target(name, qualified, ("x",)), noting(seen))
    module = importlib.import_module(name)
    thing = module.Thing()
    assert thing.method(1) == (thing, 1)
    assert module.Thing.still(2) == thing.still(2) == 2
    assert thing.of_class(3) == (module.Thing, 3)
    assert thing.inherited(4) == 4
    assert [bound.args for bound in seen] == [(thing, 1), (2,), (2,), (module.Thing, 3), (thing, 4)]
    assert "inherited" not in vars(module.Base)["inherited"].__dict__
    unwrap_all()
    assert "inherited" not in vars(module.Thing)
    assert isinstance(vars(module.Thing)["still"], staticmethod)
    assert thing.method(5) == (thing, 5)
    assert len(seen) == 5


def test_a_generator_is_followed_value_by_value(name):
    open_now = []

    def around(call, _bound):
        open_now.append(1)
        try:
            call()
        finally:
            open_now.pop()

    wrap(target(name, "many"), around)
    module = importlib.import_module(name)
    assert inspect.isgeneratorfunction(module.many)
    values = module.many(3)
    assert (next(values), open_now) == (0, [])
    assert values.send("sent") == 1
    with pytest.raises(KeyError):
        values.throw(KeyError("thrown"))
    assert module.calls == ["sent"]

    def whole():
        return (yield from module.many(2))

    rest = whole()
    assert [next(rest), next(rest)] == [0, 1]
    with pytest.raises(StopIteration) as end:
        next(rest)
    assert end.value.value == "end"


def test_a_generator_that_is_closed_is_closed(name):
    wrap(target(name, "many"), noting([]))
    values = importlib.import_module(name).many(3)
    next(values)
    values.close()
    assert list(values) == []


def test_a_coroutine_function(name):
    async def around(call, _bound):
        await call()
        raise ValueError("ours")

    wrap(target(name, "later"), around)
    module = importlib.import_module(name)
    assert inspect.iscoroutinefunction(module.later)
    assert asyncio.run(module.later(1)) == 1
    with pytest.raises(KeyError):
        asyncio.run(module.later("raise"))
    assert module.calls == [1, "raise"]


@pytest.mark.parametrize(
    ("qualified", "parameters", "status"),
    [
        ("gone", None, "missing"),
        ("Thing.gone", None, "missing"),
        ("Gone.method", None, "missing"),
        ("plain", ("b", "a"), "changed"),
        ("calls", None, "changed"),
        ("Thing.of_class", ("cls", "x"), "attached"),
    ],
)
def test_what_is_not_there_as_it_was_is_left_alone_and_told(name, qualified, parameters, status):
    seen = []
    wrap(target(name, qualified, parameters), noting(seen))
    module = importlib.import_module(name)
    assert [state.status for state in states()] == [status]
    assert module.plain("x") == "x"
    assert seen == []


@pytest.mark.parametrize(
    ("expression", "qualified"),
    [
        ("Thing().fixed()[1]", "Thing.fixed"),
        ("Thing().adder(1)", "Thing.adder"),
        ("Thing().size((1, 2))", "Thing.size"),
        ("Thing().still_adder(4)", "Thing.still_adder"),
        ("Thing().made(5)[1]", "Thing.made"),
        ("adder(2)", "adder"),
        ("cached(3), cached.cache_info().misses", "cached"),
        ("isinstance(Thing(), Base)", "Base"),
    ],
)
def test_a_callable_that_a_function_cannot_stand_for_is_left_alone(expression, qualified, name):
    module = importlib.import_module(name)
    before = eval(expression, vars(module))
    sys.modules.pop(name)
    seen = []
    wrap(target(name, qualified), noting(seen))
    assert eval(expression, vars(importlib.import_module(name))) == before
    assert [state.status for state in states()] == ["changed"]
    assert seen == []


def test_a_module_whose_import_fails_is_waited_for_again(name, tmp_path):
    seen = []
    wrap(target(name, "plain"), noting(seen))
    (tmp_path / "wrapped_example.py").write_text("raise RuntimeError('at first')")
    with pytest.raises(RuntimeError, match="at first"):
        importlib.import_module(name)
    (tmp_path / "wrapped_example.py").write_text(SOURCE + "\n# now\n")
    importlib.invalidate_caches()
    assert importlib.import_module(name).plain(1) == 1
    assert len(seen) == 1


def test_names_taken_from_the_module_later_are_wrapped(name, tmp_path):
    (tmp_path / "wrapped_user.py").write_text(f"from {name} import plain\nplain(7)\n")
    seen = []
    wrap(target(name, "plain"), noting(seen))
    try:
        importlib.import_module("wrapped_user")
    finally:
        sys.modules.pop("wrapped_user", None)
    assert len(seen) == 1


def test_what_another_wrapped_over_ours_stays(name):
    wrap(target(name, "plain"), noting([]))
    module = importlib.import_module(name)
    ours = module.plain

    def theirs(*args):
        return ours(*args)

    module.plain = theirs
    unwrap_all()
    assert module.plain is theirs


def test_absent_framework_and_module_that_cannot_be_imported(name, tmp_path):
    assert inspect_target(target("no_such_framework_at_all.x", "f")).status == "absent"
    (tmp_path / "wrapped_example.py").write_text("raise RuntimeError('two\\nlines')")
    state = inspect_target(target(name, "f"))
    assert (state.status, state.reason) == ("missing", "cannot be imported: RuntimeError: two")
    assert check_target(target("sys", "exit"), sys).status == "attached"


#: The recorder cannot be imported, as where a library it needs is of another Python.
HALF_INSTALLED = """
import sys
class NoRecorder:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("slime_profiler_plugin.record"):
            raise RuntimeError("no recorder here")
sys.meta_path.insert(0, NoRecorder())
from slime_profiler_plugin.attach._after_import import after_import
from slime_profiler_plugin.attach._targets import Target
from slime_profiler_plugin.attach._wrap import wrap

def raising(*_):
    raise ValueError("ours")

after_import("textwrap", raising)
wrap(Target("python", "textwrap", "fill", None, ()), raising)
import textwrap
print(textwrap.fill("as ever"), textwrap.fill("twice"))
"""


def test_a_failure_of_ours_stays_ours_where_there_is_no_recorder():
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", HALF_INSTALLED],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "as ever twice\n")
    told = "slime_profiler_plugin: nothing can be recorded here: RuntimeError: no recorder here\n"
    assert done.stderr == told


def test_a_child_that_is_forked_while_a_thread_waits_for_modules_imports_on(name):
    wrap(target(name, "plain"), noting([]))
    held, free = threading.Event(), threading.Event()

    def hold():
        with _after_import._lock:
            held.set()
            free.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends a child that waits for ever
        importlib.import_module(name)
        os._exit(7)
    free.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
