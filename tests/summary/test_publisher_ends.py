"""How a publisher ends, and that nothing else ends it, with a Redis of the test."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from radixgate.v1.gateway_pb2 import FinishRequest
from radixgate.v1.peer_pb2 import Announcement
from redis.asyncio import Redis

from gateway.summary import publisher as module
from gateway.summary.outbox import Outbox
from gateway.summary.publisher import Publisher
from tests.summary.valkey import eventually

TOLD = FinishRequest(reservation="other-1-m")


class Stream:
    """A Redis that takes announcements after doing `first`, once."""

    def __init__(self, first: Callable[[], Any]) -> None:
        self.taken: list[Announcement] = []
        self.asked = 0
        self._first = first

    async def xadd(self, _: str, fields: dict[str, bytes], **__: object) -> None:
        self.asked += 1
        if self.asked == 1:
            await self._first()
        self.taken.append(Announcement.FromString(fields["announcement"]))


def publisher(stream: Stream, outbox: Outbox) -> Publisher:
    return Publisher(cast(Redis, stream), "m", outbox)


async def test_what_clients_told_is_told_again_when_it_ends_in_the_midst_of_it() -> None:
    stream, outbox = Stream(asyncio.Event().wait), Outbox("g")
    ending = publisher(stream, outbox)
    running = asyncio.create_task(ending.run())
    outbox.pass_on(TOLD)
    await eventually(lambda: stream.asked == 1, "an announcement")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await ending.close()
    assert [list(each.finished) for each in stream.taken] == [[TOLD]]


async def test_it_goes_on_whatever_breaks(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)

    async def broken() -> None:
        raise RuntimeError("not an error of Redis")

    stream, outbox = Stream(broken), Outbox("g")
    running = asyncio.create_task(publisher(stream, outbox).run())
    outbox.pass_on(TOLD)
    await eventually(lambda: stream.asked == 1, "an announcement")
    outbox.reserve("a", 7, 100, [], 64)
    await eventually(lambda: bool(stream.taken), "another one")
    assert list(stream.taken[0].finished) == [TOLD]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_at_the_end_nothing_counts_that_has_not_ended() -> None:
    stream, outbox = Stream(lambda: asyncio.sleep(0)), Outbox("g")
    ending = publisher(stream, outbox)
    running = asyncio.create_task(ending.run())
    id_ = outbox.reserve("a", 7, 100, [], 64)
    await eventually(lambda: bool(stream.taken), "an announcement")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await ending.close()
    assert list(stream.taken[-1].released) == [id_]
