"""How controllers run: again after each change of what they look at, and once a second."""

import asyncio
import time
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
    while True:
        seen = store.revision
        try:
            if (waiting := reconcile(store)) is not None:
                await waiting
        except ApiError:
            await asyncio.sleep(PERIOD_SECONDS / 10)
            continue
        # An expired history is a change too.
        with suppress(ApiError):
            until = time.monotonic() + PERIOD_SECONDS
            while not any(change.kind in kinds for change in store.since(seen)):
                seen = store.revision
                if (left := until - time.monotonic()) <= 0:
                    break
                await store.wait(left)
