"""How controllers run: again after each change of what they look at, and once a second."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tests.kube.errors import ApiError
from tests.kube.kinds import Kind
from tests.kube.store import Store

PERIOD_SECONDS = 1.0


async def follow(
    store: Store, kinds: list[Kind], reconcile: Callable[[Store], Awaitable[None] | None]
) -> None:
    """Call `reconcile` until cancelled; many changes may be one call.

    One that meets a refusal of the API is called again, as real controllers do; any other error is
    a defect and ends all.
    """
    changed = asyncio.Event()

    async def listen(kind: Kind) -> None:
        while True:
            # Ends when the history that it had yet to see is compacted.
            with suppress(ApiError):
                async for _ in store.subscribe(kind):
                    changed.set()

    async with asyncio.TaskGroup() as tasks:
        for kind in kinds:
            tasks.create_task(listen(kind))
        while True:
            changed.clear()
            try:
                waiting = reconcile(store)
                if waiting is not None:
                    await waiting
            except ApiError:
                await asyncio.sleep(PERIOD_SECONDS / 10)
                continue
            with suppress(TimeoutError):
                # Not wait_for, which may lose a cancellation before Python 3.12.
                async with asyncio.timeout(PERIOD_SECONDS):
                    await changed.wait()
