"""What the gateway counts, for Prometheus; each gateway has its own registry."""

from typing import Final

from grpc import StatusCode
from prometheus_client import CollectorRegistry, Counter, Histogram, Info
from radixgate import __version__

from gateway.route.admission import Reason
from gateway.route.outcome import Fate, Outcome
from gateway.summary.events import Event, Registered

PREFIX: Final = "radixgate_gateway_"
NO_WORKER: Final = "no_worker"
"""Why requests are shed, beside the values of `Reason`."""

# What alerts and dashboards compare with all ends of a call.
_CODES: Final = (
    StatusCode.OK,
    StatusCode.DEADLINE_EXCEEDED,
    StatusCode.INTERNAL,
    StatusCode.UNAVAILABLE,
)
# From 10 µs: a decision is expected to take tens of microseconds.
SECONDS: Final = tuple(1e-5 * 2**power for power in range(18))
# To two minutes: a client's deadline bounds how long it waits.
WAIT_SECONDS: Final = tuple(1e-3 * 2**power for power in range(18))


class Metrics:
    """Counters of requests, of the queues, and of what routing predicted against what came.

    A labelled series exists once it is touched, and a rate over a missing one is no data, so those
    of a model are there from its first worker on.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._of_models: list[Counter | Histogram] = []
        info = Info(PREFIX.rstrip("_"), "What this gateway is", registry=self.registry)
        info.info({"version": __version__})
        self.requests = Counter(
            PREFIX + "requests",
            "RPCs of clients that ended, by status code",
            ["method", "code"],
            registry=self.registry,
        )
        self.tokenizing_seconds = Histogram(
            PREFIX + "tokenizing_seconds",
            "Checking and tokenizing a request, queueing for a thread included",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.routing_seconds = Histogram(
            PREFIX + "routing_seconds",
            "Matching and pricing the candidates of one decision",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.first_token_seconds = self._waits(
            "time_to_first_token_seconds",
            "From the arrival of a request to its first tokens, queue and retries included",
        )
        self.retries = self._per_model(
            "retries", "Requests sent to another worker before their first token"
        )
        self.migrations = self._per_model(
            "migrations", "Times that another worker went on with a request in mid-stream"
        )
        self.hedges = self._per_model(
            "hedges", "Requests that a second worker was asked for because the first was late"
        )
        self.circuits_opened = self._per_model(
            "circuits_opened", "Times that a worker failed too often and is left alone for a while"
        )
        self.prompt_tokens = Counter(
            PREFIX + "prompt_tokens",
            "Prompt tokens of started requests, by whether and why not they were cached",
            ["model", "fate"],
            registry=self.registry,
        )
        self.predicted_cached_tokens = self._per_model(
            "predicted_cached_tokens", "Of these, expected to be cached at the chosen worker"
        )
        self.doubts = self._per_model(
            "doubts",
            "Times that a worker was asked for a snapshot, not holding what its summary said",
        )
        self.routed = Counter(
            PREFIX + "routed",
            "Requests that Route gave to their clients: finished, or silent when no end was told",
            ["model", "end"],
            registry=self.registry,
        )
        self.queue_seconds = self._waits(
            "queue_seconds", "From the arrival of a request to its turn, tokenizing included"
        )
        self.shed = Counter(
            PREFIX + "shed",
            "Requests refused because their turn would not have come in time",
            ["model", "reason"],
            registry=self.registry,
        )
        self.entered_tokens = Counter(
            PREFIX + "entered_tokens",
            "Prompt tokens of requests that had their turn; tenants without a weight are *",
            ["model", "tenant"],
            registry=self.registry,
        )
        self.replanned_prefixes = Counter(
            PREFIX + "replanned_prefixes",
            "Hot prefixes of leaving workers, by what became of them elsewhere",
            ["model", "outcome"],
            registry=self.registry,
        )
        self.replanned_tokens = self._per_model(
            "replanned_tokens", "Tokens of these that other workers have computed"
        )
        self.request_log_missing = Counter(
            PREFIX + "request_log_missing",
            "Served requests that the request log lacks, as it could not be written fast enough",
            registry=self.registry,
        )
        for method in ("Generate", "Chat", "Route"):
            for code in _CODES:
                self.requests.labels(method, code.name)
        self.shed.labels("", NO_WORKER)

    def observe(self, model: str, event: Event) -> None:
        """Take one event of the pool of `model`."""
        if not isinstance(event, Registered):
            return
        for metric in self._of_models:
            metric.labels(model)
        for fate in Fate:
            self.prompt_tokens.labels(model, fate.value)
        for reason in (*(reason.value for reason in Reason), NO_WORKER):
            self.shed.labels(model, reason)

    def started(self, outcome: Outcome) -> None:
        """A worker began a request."""
        model = outcome.promise.life.model
        self.predicted_cached_tokens.labels(model).inc(outcome.promise.expected_tokens)
        for fate, tokens in outcome.fates().items():
            self.prompt_tokens.labels(model, fate.value).inc(tokens)

    def _per_model(self, name: str, description: str) -> Counter:
        counter = Counter(PREFIX + name, description, ["model"], registry=self.registry)
        self._of_models.append(counter)
        return counter

    def _waits(self, name: str, description: str) -> Histogram:
        histogram = Histogram(
            PREFIX + name, description, ["model"], buckets=WAIT_SECONDS, registry=self.registry
        )
        self._of_models.append(histogram)
        return histogram
