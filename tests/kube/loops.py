"""How controllers run: again after each change of the store, and once a second."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.kube.errors import ApiError
from tests.kube.store import Store

PERIOD_SECONDS = 1.0


async def follow(store: Store, reconcile: Callable[[Store], Awaitable[None] | None]) -> None:
    """Call `reconcile` until cancelled; many changes may be one call.

    One that meets a refusal of the API is called again, as real controllers do; any other error is
    a defect and ends all.
    """
    while True:
        seen = store.revision
        try:
            if (waiting := reconcile(store)) is not None:
                await waiting
        except ApiError:
            await asyncio.sleep(PERIOD_SECONDS / 10)
            continue
        if store.revision == seen:
            await store.wait(PERIOD_SECONDS)
        else:
            await asyncio.sleep(0)
