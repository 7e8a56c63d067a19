"""How commands call a gateway: so that Ctrl-C, at any moment, breaks nothing.

Calls run in an event loop, where Ctrl-C cancels the task. As an exception it would come between any
two bytecodes of grpc: a lock that is left taken or an event that is lost hangs every later call.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

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

    with asyncio.Runner() as runner:
        return run(runner, work())


def run(runner: asyncio.Runner, work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run `work` to its end in the main thread.

    NOTE: not `Runner.run`, which raises at a Ctrl-C that comes twice or just after the end.

    Raises:
        KeyboardInterrupt: Ctrl-C cancelled it.
    """
    loop = runner.get_loop()
    task = loop.create_task(work)
    before = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(task.cancel))
    try:
        return loop.run_until_complete(task)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGINT, before)
