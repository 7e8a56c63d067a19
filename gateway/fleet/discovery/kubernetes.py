"""Follows the EndpointSlices of the workers' Services: list, watch for a while, list again.

An event that a watch loses is never missed by it, so what a watch says is good for a while only.
Every list is asked for as it is now, not from any cache, and every watch goes on from its list, so
resource versions are passed on and never compared. Whatever ends a watch, its time, an expired
version, silence or a broken connection, what follows is the next list. While there is none the last
pods that were listed stay.
"""

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from aiohttp import ClientError, ClientResponse
from kubernetes.aio.client import ApiClient, DiscoveryV1Api
from kubernetes.aio.config import ConfigException

from gateway.fleet.discovery.cluster import REFUSED, ApiError, Cluster, advice, check
from gateway.fleet.discovery.discovered import Discovered, Relist
from gateway.fleet.discovery.endpoints import Endpoint, Settling, Slices

logger = logging.getLogger(__name__)

PAGE: Final = 100
"""Slices in one answer; each may name 1,000 pods."""

MOST_DOUBLINGS: Final = 10

RESOURCE: Final = "endpointslices.discovery.k8s.io"


STATUS: Final = {410: Relist.EXPIRED, 504: Relist.LATE} | dict.fromkeys(REFUSED, Relist.REFUSED)


class Timing(NamedTuple):
    """Seconds, so that a pod that went is known to be gone within a period.

    Args:
        watch: the server ends a watch after so long, of which a third is left to chance.
        spare: the client ends it so much later, should the server not have.
        answer: for a list; twice as long after each failure, up to the period.
        settle: for a pod to appear in another slice than before.
        retry: after the first failure; twice as long after each, up to `longest`.
    """

    watch: float
    spare: float
    answer: float
    settle: float
    retry: float
    longest: float

    @classmethod
    def within(cls, period: float) -> "Timing":
        """A lost event is found by the next list: after watch, spare, answer and settle at worst,
        together less than `period`, which is 3 or more.
        """
        return cls(
            watch=0.6 * period,
            spare=max(0.5, 0.1 * period),
            answer=0.15 * period,
            settle=0.1 * period,
            retry=0.02 * period,
            longest=0.5 * period,
        )

    def watch_seconds(self, chance: float) -> int:
        """How long the next watch shall last; `chance`, in [0, 1), keeps gateways apart."""
        return int(self.watch * (2 + chance) / 3)


class _End(NamedTuple):
    why: Relist
    problem: str = ""


class Discovery:
    """The pods that a selector's EndpointSlices name.

    Args:
        cluster: where to look.
        found: told of what is found; its selector is of labels, and a Service's are copied to its
            slices.
        period: seconds within which a pod that went is known to be gone, while the API server
            answers.
        listed: told of the pods, by UID, whenever they may have changed.
        clock: seconds, monotonic; the event loop's.
        chance: uniform in [0, 1).
    """

    def __init__(
        self,
        cluster: Cluster,
        found: Discovered,
        period: float,
        listed: Callable[[Mapping[str, Endpoint]], None],
        *,
        clock: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._found = found
        self._period = period
        self._timing = Timing.within(period)
        self._listed = listed
        self._clock = clock
        self._chance = chance
        self._slices = Slices()
        self._settling = Settling(self._timing.settle)
        self._settle: asyncio.TimerHandle | None = None
        self._failures = 0

    async def run(self) -> None:
        """Follow, until cancelled, whatever happens to the API server."""
        why, client = Relist.STARTED, self._cluster.client()
        try:
            while True:
                self._found.relists[why] += 1
                began = self._clock()
                end = await self._follow(client)
                why = end.why
                if why is Relist.SILENT:
                    # NOTE: its other connections may be as dead.
                    await client.close()  # type: ignore[no-untyped-call]
                    client = self._cluster.client()
                self._say(end)
                lasted = self._clock() - began >= self._timing.watch / 3
                well = lasted and not end.problem
                self._failures = 0 if well else min(self._failures + 1, MOST_DOUBLINGS)
                await asyncio.sleep(self._pause())
        finally:
            if self._settle is not None:
                self._settle.cancel()
            await client.close()  # type: ignore[no-untyped-call]

    async def _follow(self, client: ApiClient) -> _End:
        """List once and watch once; how that ended."""
        slices, stage = DiscoveryV1Api(client), "list"
        timing, failures = self._timing, self._failures
        try:
            async with asyncio.timeout(min(self._period, math.ldexp(timing.answer, failures))):
                version = await self._list(slices)
            stage = "watch"
            seconds = timing.watch_seconds(self._chance())
            async with asyncio.timeout(seconds + timing.spare):
                began = self._clock()
                await self._watch(slices, version, seconds)
            in_time = self._clock() - began >= 0.9 * seconds
            return _End(Relist.PERIOD if in_time else Relist.CLOSED)
        except TimeoutError:
            return _End(Relist.SILENT, f"the API server does not answer a {stage} in time")
        except ApiError as error:
            needed = advice(error, self._cluster.namespace, RESOURCE, "list, watch")
            problem = f"cannot {stage} EndpointSlices: {error}{needed}"
            return _End(STATUS.get(error.status, Relist.FAILED), problem)
        except (ClientError, OSError, ConfigException) as error:
            return _End(Relist.FAILED, f"cannot {stage} EndpointSlices: {error}")
        except Exception as error:
            # NOTE: whatever it is, routing goes on with the pods that are known.
            logger.exception("discovery: cannot %s EndpointSlices", stage)
            return _End(Relist.FAILED, f"cannot {stage} EndpointSlices: {error!r}")

    async def _list(self, slices: DiscoveryV1Api) -> str:
        """Take all slices as they are now; the version that a watch goes on from."""
        found: list[Any] = []
        following: str | None = None
        while True:
            async with self._asking(slices, limit=PAGE, _continue=following) as response:
                page = json.loads(await response.read())
            found += page.get("items") or ()
            following = page["metadata"].get("continue")
            if not following:
                break
        self._slices.listed(found)
        self._take()
        version: str = page["metadata"]["resourceVersion"]
        return version

    async def _watch(self, slices: DiscoveryV1Api, version: str, seconds: int) -> None:
        """Take what changes after `version`, until the server ends that."""
        async with self._asking(
            slices,
            watch=True,
            resource_version=version,
            allow_watch_bookmarks=True,
            timeout_seconds=seconds,
        ) as response:
            self._found.problem = ""
            while line := await response.content.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise ApiError(status.get("code") or 0, status.get("message") or "")
                if event["type"] != "BOOKMARK":
                    self._slices.changed(event["type"], event["object"])
                self._take()

    @asynccontextmanager
    async def _asking(self, slices: DiscoveryV1Api, **query: Any) -> AsyncIterator[ClientResponse]:
        # NOTE: without the library's models, which reject what servers do send: a null list.
        response: Any = await slices.list_namespaced_endpoint_slice_without_preload_content(
            self._cluster.namespace, label_selector=self._found.selector, **query
        )
        try:
            await check(response)
            yield response
        finally:
            response.close()

    def _take(self) -> None:
        """The API server has just said all that there is."""
        self._found.confirm()
        self._show()

    def _show(self) -> None:
        now = self._clock()
        self._found.endpoints = self._settling.take(self._slices.endpoints(), now)
        self._listed(self._found.endpoints)
        if self._settle is not None:
            self._settle.cancel()
        at = self._settling.next
        loop = asyncio.get_running_loop()
        self._settle = None if at is None else loop.call_later(at - now, self._show)

    def _pause(self) -> float:
        """Seconds until the next list: none after a watch that lasted."""
        if not self._failures:
            return 0.0
        longest = min(self._timing.longest, math.ldexp(self._timing.retry, self._failures - 1))
        return longest * (0.5 + 0.5 * self._chance())

    def _say(self, end: _End) -> None:
        if end.problem and end.problem != self._found.problem:
            logger.warning("discovery: %s; the last pods that were listed stay", end.problem)
        self._found.problem = end.problem
