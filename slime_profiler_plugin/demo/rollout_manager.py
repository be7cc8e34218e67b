"""Generates a rollout's samples on the engines, scores them, and shares them out. Knows no Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from slime_profiler_plugin._timeline import timeline

from ._model import VOCABULARY
from ._settings import Sample, Settings, make_samples, reward_of

#: An engine's `generate`: samples to one response each.
Generate: TypeAlias = Callable[[Sequence[Sample]], Awaitable[list[list[int]]]]


class RolloutManager:
    """Owns the engines: who generates and who sends weights takes turns."""

    def __init__(self, settings: Settings, reward: Callable[[Sample], float] = reward_of) -> None:
        self._settings = settings
        self._engines: Sequence[Generate] = []
        self._reward = reward
        self._in_use = asyncio.Lock()

    def use_engines(self, engines: Sequence[Generate]) -> None:
        """Generate on these engines from now on."""
        self._engines = engines

    async def generate(self, rollout: int) -> list[list[Sample]]:
        """The samples of a rollout with responses and rewards, one list per trainer rank."""
        with timeline.rollout(rollout):
            with timeline.phase("generate"):
                samples = make_samples(self._settings, rollout, VOCABULARY)
                async with self._in_use:
                    await asyncio.gather(
                        *(
                            self._generate_on(engine, samples[index :: len(self._engines)])
                            for index, engine in enumerate(self._engines)
                        )
                    )
            with timeline.phase("convert_samples", samples=len(samples)):
                each = self._settings.samples_per_rank
                return [samples[first : first + each] for first in range(0, len(samples), each)]

    async def acquire_engines(self) -> None:
        """Wait until nobody uses the engines, and keep others from it."""
        await self._in_use.acquire()

    async def release_engines(self) -> None:
        """Undo `acquire_engines`."""
        self._in_use.release()

    async def _generate_on(self, engine: Generate, samples: Sequence[Sample]) -> None:
        for sample, response in zip(samples, await engine(samples), strict=True):
            sample.response = response
        with timeline.phase("reward", samples=len(samples)):
            for sample in samples:
                sample.reward = self._reward(sample)
