"""The calls that a server has under way, when it ends them."""

import asyncio

import pytest
from grpc import StatusCode
from radixgate.calls import Calls
from radixgate.refused import RefusedError


async def test_the_end_does_not_wait_for_calls_that_come_after_it() -> None:
    calls, giving_back, given_back = Calls("it"), asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        with calls.call():
            try:
                await asyncio.Event().wait()
            finally:
                giving_back.set()
                await given_back.wait()

    async def late() -> None:
        with calls.call():
            await asyncio.Event().wait()

    first = asyncio.create_task(slow())
    await asyncio.sleep(0)
    ending = asyncio.create_task(calls.end())
    await giving_back.wait()
    second = asyncio.create_task(late())
    given_back.set()
    await asyncio.wait_for(ending, 5)
    for task, message in ((first, "no time to finish"), (second, "it is leaving; ask another")):
        with pytest.raises(RefusedError, match=message) as refused:
            await task
        assert refused.value.code is StatusCode.UNAVAILABLE
