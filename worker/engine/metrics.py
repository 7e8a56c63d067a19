"""The worker's Prometheus metrics: counters where a rate is wanted, so that any window works."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from radixgate import __version__
from radixgate.v1.worker_pb2 import ModelCard

from worker.engine.events import Finished
from worker.engine.histogram import BufferedHistogram
from worker.engine.stats import EngineLoad
from worker.kv.misses import Misses

_WAIT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_ITL_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2)
_TOKENS_PER_SECOND = (1, 2, 5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500)


class EngineMetrics:
    """All of `radixgate_worker_*`.

    Args:
        registry: where they are registered; one per engine.
        bytes_per_block: of KV memory, over all layers.
    """

    def __init__(self, registry: CollectorRegistry, bytes_per_block: int) -> None:
        self._bytes_per_block = bytes_per_block
        self._evicted_so_far = 0
        self._recomputed_so_far = 0

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"radixgate_worker_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"radixgate_worker_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"radixgate_worker_{name}", text, registry=registry, buckets=buckets)

        self._requests = counter("requests", "Requests that ended, by how", "outcome")
        self._prompt = counter(
            "prompt_tokens",
            "Prompt tokens, each request once: cached (the hit rate), or why they were not",
            "source",
        )
        self._computed = counter("computed_tokens", "Tokens computed, recomputes included", "kind")
        self._preemptions = counter("preemptions", "Sequences that lost their blocks to another")
        self._evicted = counter("evicted_blocks", "Blocks evicted to make room")
        self._regret = counter("regret_tokens", "Tokens computed again after they were evicted")
        self._regret_seconds = counter("regret_seconds", "Time that computing them again took")
        self._queue = histogram("queue_seconds", "Arrival to being scheduled", _WAIT_SECONDS)
        self._prefill = histogram("prefill_seconds", "Scheduled to first token", _WAIT_SECONDS)
        self._ttft = histogram(
            "time_to_first_token_seconds", "Arrival to first token", _WAIT_SECONDS
        )
        self._itl = BufferedHistogram(
            "radixgate_worker_inter_token_latency_seconds",
            "Between two tokens of a sequence",
            registry,
            _ITL_SECONDS,
        )
        self._throughput = histogram(
            "request_tokens_per_second",
            "Tokens of one request after its first, by the time that they took",
            _TOKENS_PER_SECOND,
        )
        self._waiting = gauge("requests_waiting", "Requests that hold no blocks yet")
        self._running = gauge("requests_running", "Requests that hold blocks")
        self._backlog = gauge("backlog_tokens", "Tokens still to be computed for accepted requests")
        self._prefill_rate = gauge("prefill_tokens_per_second", "Recent prefill throughput")
        self._decode_rate = gauge("decode_tokens_per_second", "Recent decode throughput")
        self._blocks = gauge("kv_blocks", "KV blocks by state", "state")
        self._kv_total = gauge("kv_total_bytes", "KV memory")
        self._kv_used = gauge("kv_used_bytes", "KV memory in blocks that are not free")
        self._fragmentation = gauge(
            "kv_fragmentation_ratio", "Room in used blocks that holds no token, 0 to 1"
        )
        # NOTE: a labelled series exists once it is touched; a rate over a missing one is no data.
        for outcome in ("stop", "length", "cancelled", "expired", "failed"):
            self._requests.labels(outcome)
        for source in ("cached", "new", "evicted", "elsewhere"):
            self._prompt.labels(source)
        for kind in ("prefill", "decode"):
            self._computed.labels(kind)

    @classmethod
    def unread(cls) -> "EngineMetrics":
        """Metrics that nobody reads, for what shall not be counted."""
        return cls(CollectorRegistry(), bytes_per_block=0)

    def started(self, queue_seconds: float, cached_tokens: int, misses: Misses) -> None:
        """A request was scheduled for the first time."""
        self._queue.observe(queue_seconds)
        self._prompt.labels("cached").inc(cached_tokens)
        self._prompt.labels("new").inc(misses.new)
        self._prompt.labels("evicted").inc(misses.evicted)
        self._prompt.labels("elsewhere").inc(misses.elsewhere)

    def step(self, prefill_tokens: int, decode_tokens: int, preemptions: int) -> None:
        """A step was computed."""
        self._computed.labels("prefill").inc(prefill_tokens)
        self._computed.labels("decode").inc(decode_tokens)
        self._preemptions.inc(preemptions)

    def first_token(self, seconds: float, prefill_seconds: float) -> None:
        """A sequence got its first token, so long after it arrived and was first scheduled."""
        self._ttft.observe(seconds)
        self._prefill.observe(prefill_seconds)

    def next_token(self, seconds: float) -> None:
        """A sequence got another token, so long after the one before."""
        self._itl.observe(seconds)

    def finished(self, finished: Finished) -> None:
        """A request ended by itself."""
        self.ended(finished.reason.value)
        seconds = finished.total_seconds - finished.ttft_seconds
        if seconds > 0:
            self._throughput.observe((finished.output_tokens - 1) / seconds)

    def ended(self, outcome: str) -> None:
        """A request ended: stop, length, cancelled by its client, expired, or failed."""
        self._requests.labels(outcome).inc()

    def load(self, load: EngineLoad) -> None:
        """The state after a step."""
        kv = load.kv
        self._waiting.set(load.waiting)
        self._running.set(load.running)
        self._backlog.set(load.backlog_tokens)
        self._prefill_rate.set(load.prefill_tokens_per_second)
        self._decode_rate.set(load.decode_tokens_per_second)
        self._blocks.labels("free").set(kv.free_blocks)
        self._blocks.labels("cached").set(kv.cached_blocks)
        self._blocks.labels("pinned").set(kv.pinned_blocks)
        self._blocks.labels("running").set(kv.running_blocks)
        self._kv_total.set(kv.total_blocks * self._bytes_per_block)
        self._kv_used.set((kv.total_blocks - kv.free_blocks) * self._bytes_per_block)
        self._fragmentation.set(load.fragmentation)
        self._evicted.inc(kv.evicted_blocks - self._evicted_so_far)
        self._evicted_so_far = kv.evicted_blocks
        again = kv.recomputed_tokens - self._recomputed_so_far
        self._recomputed_so_far = kv.recomputed_tokens
        self._regret.inc(again)
        if load.prefill_tokens_per_second:
            self._regret_seconds.inc(again / load.prefill_tokens_per_second)


def name_worker(registry: CollectorRegistry, card: ModelCard) -> None:
    """Say which worker of which model the metrics are of: `radixgate_worker_info`."""
    info = Info("radixgate_worker", "What this worker is", registry=registry)
    info.info(
        {
            "model": card.model,
            "worker": card.worker,
            "version": __version__,
            "kv_format": card.kv_format,
        }
    )
