"""How commands call a gateway: so that Ctrl-C, at any moment, breaks nothing.

Calls are made in an event loop, where Ctrl-C cancels the task that waits. Elsewhere it raises
between any two bytecodes, also between those with which grpc takes and gives back its locks. A lock
that is left taken hangs every later call, and the end of the process.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from radixgate.client import AsyncClient

Answer = TypeVar("Answer")


def call(gateway: str, ask: Callable[[AsyncClient], Awaitable[Answer]]) -> Answer:
    """What `ask` gets from the gateway at this address.

    Raises:
        RadixgateError: the call failed.
        KeyboardInterrupt: Ctrl-C cancelled it.
    """

    async def work() -> Answer:
        async with AsyncClient(gateway) as client:
            return await ask(client)

    return asyncio.run(work())
