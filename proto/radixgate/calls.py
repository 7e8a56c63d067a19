"""The calls that a server has under way: what it waits for when it leaves, and ends at the last."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from grpc import StatusCode

from radixgate.refused import RefusedError


class Calls:
    """Args: `who` serves them, for the callers of those that are ended."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._under_way: set[asyncio.Task[Any]] = set()
        self._ended: set[asyncio.Task[Any]] = set()
        self._over = False
        self._quiet = asyncio.Event()
        self._quiet.set()

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._under_way)

    @contextmanager
    def call(self) -> Iterator[None]:
        """Serve one inside, in a task of its own.

        Raises:
            RefusedError: UNAVAILABLE, `end` has ended it, or none begins any more.
        """
        if self._over:
            raise RefusedError(StatusCode.UNAVAILABLE, f"{self._who} is leaving; ask another")
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        self._quiet.clear()
        try:
            yield
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            task.uncancel()
            raise RefusedError(
                StatusCode.UNAVAILABLE,
                f"{self._who} has left, and had no time to finish; ask another",
            ) from None
        finally:
            self._under_way.discard(task)
            self._ended.discard(task)
            if not self._under_way:
                self._quiet.set()

    def take_no_more(self) -> None:
        """Let none begin any more."""
        self._over = True

    async def finish(self, seconds: float) -> int:
        """Wait for those under way, at most so long; how many are left then."""
        try:
            async with asyncio.timeout(seconds):
                await self._quiet.wait()
        except TimeoutError:
            pass
        return len(self)

    async def end(self) -> None:
        """End those under way, and return when they have given back what they held. None begins
        any more, so that the end does not wait for those that still come.
        """
        self.take_no_more()
        for task in self._under_way - self._ended:
            self._ended.add(task)
            task.cancel()
        await self._quiet.wait()
