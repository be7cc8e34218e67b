"""Stands for slime's timers."""

from contextlib import contextmanager

STARTED = []


class Timer:
    def start(self, name):
        assert name not in STARTED
        STARTED.append(name)

    def end(self, name):
        STARTED.remove(name)


@contextmanager
def timer(name):
    Timer().start(name)
    try:
        yield
    finally:
        Timer().end(name)
