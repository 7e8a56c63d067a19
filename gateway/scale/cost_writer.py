"""Writes what deleting each pod would cost onto the pods, from the gateway that leads.

Every pod that is listed is written once, and then when its cost changes, at most once in a round. A
pod is named by its UID as well, so another that got its name is left as it is.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import ClientError
from kubernetes.aio.client import CoreV1Api

from gateway.fleet.discovery.cluster import ApiError, Cluster, advice, check
from gateway.fleet.discovery.discovered import Discovered
from gateway.fleet.discovery.endpoints import Endpoint
from gateway.fleet.fleet import Fleet
from gateway.scale.deletion_cost import ANNOTATION, Holding, costs
from gateway.scale.leader import Leader

logger = logging.getLogger(__name__)

ROUND_SECONDS: Final = 60.0
PATCH_SECONDS: Final = 5.0
ANOTHER: Final = frozenset({404, 409, 422})
"""Statuses that say that the pod of that name, if there is one, has another UID."""

Values = Callable[[str], Mapping[str, float]]
"""Of a model: prompt tokens a second served from the cache of each worker, by its id."""


class CostWriter:
    """Args:
    cluster: where the pods are.
    leader: whether it is this gateway that writes.
    fleet: the workers, and which pods they are in.
    discovered: the pods that are listed.
    values: what the workers' caches are worth.
    seconds: between two rounds.
    """

    def __init__(
        self,
        cluster: Cluster,
        leader: Leader,
        fleet: Fleet,
        *,
        discovered: Discovered,
        values: Values,
        seconds: float = ROUND_SECONDS,
    ) -> None:
        self._cluster = cluster
        self._leader = leader
        self._fleet = fleet
        self._discovered = discovered
        self._values = values
        self._seconds = seconds
        self._written: dict[str, int] = {}
        self._problem = ""

    async def run(self) -> None:
        """Write, until cancelled, whatever happens to the API server."""
        client = self._cluster.client()
        try:
            while True:
                await asyncio.sleep(self._seconds)
                try:
                    problem = await self._round(CoreV1Api(client))
                except Exception as error:
                    # NOTE: whatever it is, requests are served without.
                    logger.exception("deletion costs cannot be written")
                    problem = repr(error)
                if problem and problem != self._problem:
                    logger.warning("deletion costs are not written: %s", problem)
                self._problem = problem
        finally:
            await client.close()  # type: ignore[no-untyped-call]

    async def _round(self, pods: CoreV1Api) -> str:
        """Write what has changed; what kept it from that."""
        if not self._leader.leads:
            # NOTE: who leads writes meanwhile, so what is there will not be known.
            self._written.clear()
            return ""
        listed = self._discovered.endpoints
        now = costs(self._holdings(), self._written)
        self._written = {uid: cost for uid, cost in self._written.items() if uid in listed}
        for uid, cost in now.items():
            if self._written.get(uid) == cost:
                continue
            if not self._leader.leads:
                return ""
            if uid in listed and (problem := await self._write(pods, listed[uid], cost)):
                return problem
        return ""

    def _holdings(self) -> list[Holding]:
        """What is in each pod that stays: workers, or nothing yet."""
        endpoints = self._discovered.endpoints.values()
        empty = {pod.uid for pod in endpoints if not pod.terminating}
        values = {model: self._values(model) for model in self._fleet.models()}
        found = []
        for worker in self._fleet:
            place = worker.place
            if place is None or place.endpoint is None or place.closed:
                continue
            empty.discard(place.endpoint.uid)
            value = values[worker.registration.model].get(worker.id, 0.0)
            found.append(Holding(place.endpoint.uid, value, worker.draining))
        return found + [Holding(uid, 0.0, draining=False) for uid in empty]

    async def _write(self, pods: CoreV1Api, pod: Endpoint, cost: int) -> str:
        patch: dict[str, Any] = {
            "metadata": {"uid": pod.uid, "annotations": {ANNOTATION: str(cost)}}
        }
        try:
            async with asyncio.timeout(PATCH_SECONDS):
                response: Any = await pods.patch_namespaced_pod_without_preload_content(
                    pod.name,
                    pod.namespace,
                    patch,
                    field_manager="radixgate-gateway",
                    _content_type="application/merge-patch+json",
                )
                try:
                    await check(response)
                finally:
                    response.release()
        except ApiError as error:
            if error.status not in ANOTHER:
                needed = advice(error, pod.namespace, "pods", "patch")
                return f"pod {pod.name}: {error}{needed}"
            logger.info("pod %s of UID %s is gone: %s", pod.name, pod.uid, error)
        except (ClientError, OSError, TimeoutError) as error:
            return f"pod {pod.name}: {error or type(error).__name__}"
        else:
            self._written[pod.uid] = cost
        return ""
