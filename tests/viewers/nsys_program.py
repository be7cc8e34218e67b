"""A recording process for Nsight Systems to watch: three training steps, and a rollout of two asyncio tasks.

python nsys_program.py OUT
"""

from __future__ import annotations

import asyncio
import sys

from nsys_shim import show_the_tool

from slime_profiler_plugin import timeline


async def _sample(group: int) -> None:
    with timeline.phase("reward", group=group):
        await asyncio.sleep(0.002)


async def _rollout() -> None:
    await asyncio.gather(_sample(0), _sample(1))


def main(out: str) -> None:
    """Record what Nsight Systems is to see."""
    show_the_tool()
    started = timeline.start(
        {"out": out, "outputs": {"record_function": False}}, run_id="nsys", role="actor", rank=0
    )
    assert started, "the recorder did not start"
    timeline.set_rollout(3)
    for step in range(3):
        with timeline.phase("train_step", step=step):
            with timeline.phase("forward_backward"):
                pass
            with timeline.phase("optimizer"):
                pass
    asyncio.run(_rollout())
    timeline.stop()


if __name__ == "__main__":
    main(sys.argv[1])
