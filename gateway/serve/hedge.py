"""A worker that is late with its first message gets company: who answers first is taken."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar


class Asked(Protocol):
    """A worker that was asked."""

    async def read(self) -> bytes | None:
        """Its next message; None at the end.

        Raises:
            StreamError: it has failed.
        """


AskedT = TypeVar("AskedT", bound=Asked)
Reading: TypeAlias = asyncio.Task[bytes | None]


async def first_answer(
    first: AskedT, another: Callable[[], AskedT | None], seconds: float | None
) -> tuple[AskedT, bytes | None]:
    """Who answers first, and its first message.

    Args:
        first: was asked.
        another: asks a second one, if there is one.
        seconds: after which `another` is called; None is never.

    Raises:
        StreamError: all have failed; or the first one did, before another was asked.
    """
    readings = {asyncio.create_task(first.read()): first}
    try:
        done, _ = await asyncio.wait(readings, timeout=seconds)
        if not done and (second := another()):
            readings[asyncio.create_task(second.read())] = second
        return await _first_good(readings)
    finally:
        for reading in readings:
            reading.cancel()
        await asyncio.gather(*readings, return_exceptions=True)


async def _first_good(readings: dict[Reading, AskedT]) -> tuple[AskedT, bytes | None]:
    waiting = set(readings)
    while True:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for reading in done:
            if not waiting or reading.exception() is None:
                return readings[reading], reading.result()
