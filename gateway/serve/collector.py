"""The gateway's state for Prometheus, read when asked for: workers, queues, mirrors, Redis."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.fleet.discovery.discovered import Discovered
from gateway.fleet.discovery.roster import Listing, listing_of
from gateway.fleet.fleet import Fleet
from gateway.fleet.trust import Trust
from gateway.route.breaker import Breakers
from gateway.scale.demand import Demands
from gateway.scale.desired import Metric as ScaleMetric
from gateway.scale.desired import level, needs
from gateway.serve.metrics import PREFIX
from gateway.serve.outcomes import Outcomes
from gateway.serve.queues import Queues
from gateway.summary.pool import Pools

LOOP_SECONDS: Final = 5.0

SCALING: Final = {
    ScaleMetric.CACHE_PRESSURE: "KV memory that is needed over what there is, fleet-wide",
    ScaleMetric.MISS_RATE: "Share of prompt tokens that were not cached, fleet-wide",
    ScaleMetric.QUEUE_SECONDS: "How long a request waits to be computed, fleet-wide",
    ScaleMetric.KV_UTILIZATION: "Share of KV blocks that nothing can evict, fleet-wide",
    ScaleMetric.DESIRED_WORKERS: "Workers that the pool should have, fleet-wide",
}


class StateCollector(Collector):
    """Made in the event loop, which owns the state; asked in the thread of the metrics server."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        pools: Pools,
        queues: Queues,
        breakers: Breakers,
        outcomes: Outcomes,
        demands: Demands,
        discovered: Discovered | None,
        clock: Callable[[], float],
    ) -> None:
        self._discovered = discovered
        self._fleet = fleet
        self._pools = pools
        self._breakers = breakers
        self._outcomes = outcomes
        self._queues = queues
        self._demands = demands
        self._clock = clock
        self._loop = asyncio.get_running_loop()

    def collect(self) -> Iterable[Metric]:
        """All metrics now.

        Raises:
            TimeoutError: the event loop does not answer.
        """
        return asyncio.run_coroutine_threadsafe(self._collect(), self._loop).result(LOOP_SECONDS)

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: asking would wait for the loop that registers this."""
        return ()

    async def _collect(self) -> list[Metric]:
        redis = GaugeMetricFamily(PREFIX + "redis_up", "1 while Redis can be used")
        redis.add_metric([], 0.0 if self._pools.problem else 1.0)
        lag = GaugeMetricFamily(
            PREFIX + "mirror_lag_seconds",
            "From when the last event was written to Redis to when it was taken here",
            labels=["model"],
        )
        boundaries = GaugeMetricFamily(
            PREFIX + "mirror_boundaries",
            "Prefixes in the mirror of a worker's summary",
            labels=["model", "worker"],
        )
        reservations = CounterMetricFamily(
            PREFIX + "reservations",
            "Announced to other gateways, dropped before that or on the way, heard of from them",
            labels=["model", "fate"],
        )
        mismatches = CounterMetricFamily(
            PREFIX + "mismatches",
            "A summary in Redis or a mirror was not what the worker reports, and was repaired",
            labels=["model", "place"],
        )
        audits = CounterMetricFamily(
            PREFIX + "audits", "Summaries counted again, here and in Redis", labels=["model"]
        )
        candidates = GaugeMetricFamily(
            PREFIX + "candidates",
            "Workers that may be sent a request: known, not draining, not lost",
            labels=["model"],
        )
        for pool in self._pools:
            candidates.add_metric([pool.model], len(self._fleet.candidates(pool.model)))
            audits.add_metric([pool.model], pool.auditor.audits)
            for place, count in pool.mismatches.items():
                mismatches.add_metric([pool.model, place], count)
            fates = {
                "announced": pool.outbox.announced,
                "dropped": pool.outbox.dropped,
                "heard": pool.heard,
            }
            for fate, count in fates.items():
                reservations.add_metric([pool.model, fate], count)
            lag.add_metric([pool.model], pool.tail.lag)
            for summary in pool.mirror.summaries():
                labels = [pool.model, summary.registration.worker]
                boundaries.add_metric(labels, len(summary.hashes))
        queued = GaugeMetricFamily(
            PREFIX + "queue_requests",
            "Requests that wait for their turn or for a first worker",
            labels=["model"],
        )
        for model, waiting in self._queues.waiting().items():
            queued.add_metric([model], waiting)
        pools = [redis, lag, boundaries, reservations, mismatches, audits, candidates, queued]
        return [*pools, *self._scaling(), *self._workers(), *self._pods()]

    def _scaling(self) -> list[Metric]:
        """Of each pool; no value where nothing is known, so that nobody scales on it."""
        families = {
            metric: GaugeMetricFamily(f"{PREFIX}scale_{metric.value}", text, labels=["model"])
            for metric, text in SCALING.items()
        }
        needed = GaugeMetricFamily(
            PREFIX + "scale_needed_workers",
            "Workers that would bring a signal to its target; the largest makes desired_workers",
            labels=["model", "signal"],
        )
        for pool in self._pools:
            if not self._pools.knows(pool.model):
                continue
            signals = self._demands.signals(pool.model)
            if signals.traffic:
                for signal, workers in needs(signals).items():
                    needed.add_metric([pool.model, signal], workers)
            for metric, family in families.items():
                known = level(metric, signals)
                if known is not None:
                    family.add_metric([pool.model], known)
        return [*families.values(), needed]

    def _workers(self) -> list[Metric]:
        """Of each worker that is there now."""
        trusts = GaugeMetricFamily(
            PREFIX + "worker_trust",
            "1 for how far a worker's summary is believed now, 0 for the others",
            labels=["model", "worker", "trust"],
        )
        circuits = GaugeMetricFamily(
            PREFIX + "worker_circuit_open",
            "1 while requests are kept away from a worker because it failed too often",
            labels=["model", "worker"],
        )
        kept = GaugeMetricFamily(
            PREFIX + "worker_kept_ratio",
            "Of prompt tokens that a worker's summary promised lately, the share that was there",
            labels=["model", "worker"],
        )
        fates = CounterMetricFamily(
            PREFIX + "worker_prompt_tokens",
            "Prompt tokens of started requests, of the workers that are there now",
            labels=["model", "worker", "fate"],
        )
        now = self._clock()
        for worker in self._fleet:
            reason = self._breakers.reason(worker.life, now)
            labels = [worker.registration.model, worker.id]
            circuits.add_metric(labels, float(bool(reason)))
            kept.add_metric(labels, self._outcomes.kept(worker.life))
            for fate, tokens in self._outcomes.tokens(worker.life).items():
                fates.add_metric([*labels, fate.value], tokens)
            believed = worker.belief(now).trust
            for trust in Trust:
                trusts.add_metric([*labels, trust.name.lower()], float(trust is believed))
        return [trusts, circuits, kept, fates]

    def _pods(self) -> list[Metric]:
        """Of what Kubernetes lists; without samples when it is not asked."""
        endpoints = GaugeMetricFamily(
            PREFIX + "discovery_endpoints",
            "Pods that Kubernetes lists, and workers that it lists no more or never has",
            labels=["state"],
        )
        age = GaugeMetricFamily(
            PREFIX + "discovery_age_seconds", "Since the API server confirmed which pods there are"
        )
        relists = CounterMetricFamily(
            PREFIX + "discovery_relists",
            "Times that the pods were listed, by why",
            labels=["reason"],
        )
        found = self._discovered
        if found is not None:
            states = Counter(map(listing_of, found.endpoints.values()))
            places = [worker.place.listing for worker in self._fleet if worker.place is not None]
            states.update(each for each in places if each in {Listing.UNLISTED, Listing.GONE})
            for listing in Listing:
                endpoints.add_metric([listing.name.lower()], states[listing])
            age.add_metric([], found.age())
            for reason, count in found.relists.items():
                relists.add_metric([reason.value], count)
        return [endpoints, age, relists]
