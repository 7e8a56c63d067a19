"""When each alert fires and when it does not, as series in promtool's notation, a value a minute.

`0+60x90` is a counter that grows by one a second for 90 minutes, `1x30` a gauge that stays at 1.
"""

from collections.abc import Iterable
from typing import NamedTuple

Series = dict[str, str]
Labels = dict[str, str]

HOURS = "x180"


class Fires(NamedTuple):
    """Args: the `alert`; `what` happens; its `series`; `minute`, at which it fires and no earlier;
    `labels` of all that fire.
    """

    alert: str
    what: str
    series: Series
    minute: int
    labels: list[Labels]


class Quiet(NamedTuple):
    """Args: the `alert`; `what` happens, that is no reason for it; its `series`, for 3 hours."""

    alert: str
    what: str
    series: Series


def series(job: str, metric: str, values: str, **labels: str) -> Series:
    """Of one process of `job`; `metric` without what all of that job's begin with."""
    prefix = "" if metric == "up" else f"radixgate_{job}_"
    labels = {"namespace": "ns", "job": job, "instance": f"{job}-1", **labels}
    inner = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return {f"{prefix}{metric}{{{inner}}}": values}


def gateway(metric: str, values: str, **labels: str) -> Series:
    return series("gateway", metric, values, **labels)


def worker(metric: str, values: str, **labels: str) -> Series:
    return series("worker", metric, values, **labels)


def model(metric: str, values: str, **labels: str) -> Series:
    return gateway(metric, values, model="m", **labels)


def histogram(metric: str, quick: int, slow: int, seconds: int = 20) -> Series:
    """So many values a minute below 1 s, and so many between `seconds` and half as many more."""
    counts = {"1": quick, str(seconds): quick, str(1.5 * seconds): quick + slow}
    counts["+Inf"] = quick + slow
    buckets = {}
    for le, count in counts.items():
        buckets |= model(f"{metric}_bucket", f"0+{count}{HOURS}", le=le)
    return buckets | model(f"{metric}_count", f"0+{quick + slow}{HOURS}")


def fates(**tokens: int) -> Series:
    """Prompt tokens a minute by fate."""
    found = {"cached": 0, "stale": 0, "elsewhere": 0, "evicted": 0, "new": 0} | tokens
    return together(
        model("prompt_tokens_total", f"0+{count}{HOURS}", fate=fate)
        for fate, count in found.items()
    )


def together(parts: Iterable[Series]) -> Series:
    return {name: values for part in parts for name, values in part.items()}


GATEWAYS = {"namespace": "ns", "job": "gateway"}
GATEWAY = GATEWAYS | {"instance": "gateway-1"}
MODEL = GATEWAYS | {"model": "m"}
OF_WORKER = MODEL | {"worker": "w"}
WORKER = {"namespace": "ns", "job": "worker", "instance": "worker-1"}
INFO = {"model": "m", "worker": "w", "version": "1", "kv_format": "none"}

DAY = 23 * 60


def reuse(before: tuple[int, int], after: tuple[int, int], new: int = 0) -> Series:
    """Tokens a second cached, and elsewhere, for 23 hours `before` and two `after`; then `new`."""
    parts = {}
    for fate, first, then in (
        ("cached", before[0], after[0]),
        ("elsewhere", before[1], after[1]),
        ("new", 0, new),
    ):
        values = f"0+{60 * first}x{DAY} {60 * first * DAY}+{60 * then}x120"
        parts |= model("prompt_tokens_total", values, fate=fate)
    return parts


def requests(*, ok: str, **others: str) -> Series:
    codes = {"OK": ok, "UNAVAILABLE": "0x180", "DEADLINE_EXCEEDED": "0x180"} | others
    return together(
        gateway("requests_total", values, method="Generate", code=code)
        for code, values in codes.items()
    )


def shed(values: str, reason: str) -> Series:
    return model("shed_total", values, reason=reason)


CASES: list[Fires | Quiet] = [
    Fires(
        "RadixgateNoGateway",
        "all are down",
        gateway("up", "0x30") | gateway("up", "0x30", instance="gateway-2"),
        2,
        [GATEWAYS],
    ),
    Fires("RadixgateNoGateway", "none is there", {}, 2, [{"job": "gateway"}]),
    Fires(
        "RadixgateNoGateway",
        "the last one went",
        gateway("up", "1x9 stale"),
        12,
        [{"job": "gateway"}],
    ),
    Quiet(
        "RadixgateNoGateway",
        "one of two is down",
        gateway("up", "0x180") | gateway("up", "1x180", instance="gateway-2"),
    ),
    Fires("RadixgateGatewayDown", "it is down", gateway("up", "1x9 0x30"), 15, [GATEWAY]),
    Quiet("RadixgateGatewayDown", "it restarts", gateway("up", "1x9 0x3 1x170")),
    Fires(
        "RadixgateErrors",
        "2 of 102 fail",
        requests(ok="0+100x180", UNAVAILABLE="0+2x180"),
        11,
        [GATEWAYS],
    ),
    Quiet("RadixgateErrors", "1 of 201", requests(ok="0+200x180", UNAVAILABLE="0+1x180")),
    Quiet("RadixgateErrors", "50 at once", requests(ok="0+100x180", UNAVAILABLE="0x20 50x160")),
    Quiet("RadixgateErrors", "nobody asks", requests(ok="9x180")),
    Quiet("RadixgateErrors", "clients are wrong", requests(ok="0x180", NOT_FOUND="0+9x180")),
    Fires(
        "RadixgateDeadlines",
        "10 of 110 are late",
        requests(ok="0+100x180", DEADLINE_EXCEEDED="0+10x180"),
        11,
        [GATEWAYS],
    ),
    Quiet("RadixgateDeadlines", "few", requests(ok="0+100x180", DEADLINE_EXCEEDED="0+4x180")),
    Fires("RadixgateRedisAway", "one of two", gateway("redis_up", "1x9 0x30"), 12, [GATEWAYS]),
    Quiet("RadixgateRedisAway", "a failover", gateway("redis_up", "1x9 0 1x170")),
    Fires("RadixgateMirrorLag", "3 s", model("mirror_lag_seconds", "3x30"), 5, [GATEWAY | MODEL]),
    Quiet("RadixgateMirrorLag", "1 s", model("mirror_lag_seconds", "1x180")),
    Fires(
        "RadixgateMismatches",
        "one in ten minutes, for more than an hour",
        model("mismatches_total", " ".join(f"{n}x9" for n in range(15)), place="mirror"),
        70,
        [MODEL | {"place": "mirror"}],
    ),
    Quiet(
        "RadixgateMismatches",
        "Redis restarted once",
        model("mismatches_total", "0x9 40x170", place="summary"),
    ),
    Fires(
        "RadixgateDiscoveryStale",
        "silence",
        gateway("discovery_age_seconds", "0+60x60"),
        6,
        [GATEWAY],
    ),
    Quiet("RadixgateDiscoveryStale", "relists", gateway("discovery_age_seconds", "0 60 " * 90)),
    Fires(
        "RadixgateRequestsWithoutWorker",
        "they wait, and there is none",
        model("queue_requests", "2x30") | model("candidates", "0x30"),
        5,
        [MODEL],
    ),
    Fires(
        "RadixgateRequestsWithoutWorker",
        "there never was a worker of any model",
        gateway("queue_requests", "1x30", model=""),
        5,
        [GATEWAYS],
    ),
    Fires(
        "RadixgateRequestsWithoutWorker",
        "they come and fail between two scrapes",
        model("queue_requests", "0x30") | shed("0+1x30", "no_worker") | model("candidates", "0x30"),
        6,
        [MODEL],
    ),
    Fires(
        "RadixgateRequestsWithoutWorker",
        "one of two gateways knows no worker",
        model("queue_requests", "2x30")
        | model("candidates", "0x30")
        | model("candidates", "3x30", instance="gateway-2"),
        5,
        [MODEL],
    ),
    Quiet(
        "RadixgateRequestsWithoutWorker",
        "they wait for their turn",
        model("queue_requests", "9x180") | model("candidates", "1x180"),
    ),
    Quiet(
        "RadixgateRequestsWithoutWorker",
        "the pool comes from zero",
        model("queue_requests", "0x9 1x3 0x170")
        | shed("0x9 1x170", "no_worker")
        | model("candidates", "0x13 1x170"),
    ),
    Quiet("RadixgateRequestsWithoutWorker", "nobody asks", model("candidates", "0x180")),
    Quiet(
        "RadixgateRequestsWithoutWorker",
        "they are refused for another reason",
        shed("0+1x180", "late") | model("candidates", "0x180"),
    ),
    Fires("RadixgateModelWithoutWorkers", "it went", model("candidates", "1x9 0x60"), 25, [MODEL]),
    Quiet(
        "RadixgateModelWithoutWorkers",
        "another gateway has one",
        model("candidates", "1x9 0x170") | model("candidates", "1x180", instance="gateway-2"),
    ),
    Quiet("RadixgateModelWithoutWorkers", "it was never there", model("candidates", "0x180")),
    Fires(
        "RadixgateShedding",
        "2 of 102 are late",
        shed("0+2x180", "late") | shed("0x180", "full") | histogram("queue_seconds", 100, 0),
        11,
        [MODEL | {"reason": "late"}],
    ),
    Fires(
        "RadixgateShedding",
        "all are refused",
        shed("0+5x180", "full") | histogram("queue_seconds", 0, 0),
        11,
        [MODEL | {"reason": "full"}],
    ),
    Quiet("RadixgateShedding", "few", shed("0+1x180", "late") | histogram("queue_seconds", 200, 0)),
    Quiet(
        "RadixgateShedding",
        "without workers",
        shed("0+5x180", "no_worker") | histogram("queue_seconds", 0, 0),
    ),
    Quiet(
        "RadixgateShedding", "nobody asks", shed("0x180", "late") | histogram("queue_seconds", 0, 0)
    ),
    Fires("RadixgateLongQueue", "1 in 4 waits", histogram("queue_seconds", 30, 10), 11, [MODEL]),
    Quiet("RadixgateLongQueue", "1 in 20 waits", histogram("queue_seconds", 95, 5)),
    Quiet("RadixgateLongQueue", "1 in 4 waits 6 s", histogram("queue_seconds", 30, 10, 6)),
    Quiet("RadixgateLongQueue", "nobody asks", histogram("queue_seconds", 0, 0)),
    Fires(
        "RadixgateSlowFirstTokens",
        "1 in 4 needs 9 s",
        histogram("time_to_first_token_seconds", 30, 10, 9),
        11,
        [MODEL],
    ),
    Quiet("RadixgateSlowFirstTokens", "1 in 20", histogram("time_to_first_token_seconds", 95, 5)),
    Quiet(
        "RadixgateSlowFirstTokens",
        "1 in 4 needs 3 s",
        histogram("time_to_first_token_seconds", 30, 10, 3),
    ),
    Quiet(
        "RadixgateSlowFirstTokens", "nobody asks", histogram("time_to_first_token_seconds", 0, 0)
    ),
    Fires(
        "RadixgateCacheTooSmall", "3 in 10", fates(cached=500, evicted=300, new=200), 61, [MODEL]
    ),
    Quiet("RadixgateCacheTooSmall", "1 in 10", fates(cached=500, evicted=100, new=400)),
    Quiet("RadixgateCacheTooSmall", "nobody asks", fates()),
    Fires("RadixgateStaleMatches", "1 in 10", fates(cached=900, stale=100, new=5000), 16, [MODEL]),
    Quiet("RadixgateStaleMatches", "3 in 100", fates(cached=970, stale=30)),
    Quiet("RadixgateStaleMatches", "all is new", fates(new=1000)),
    Fires(
        "RadixgateTooFewWorkers",
        "one is missing",
        model("scale_desired_workers", "3x60") | model("candidates", "2x60"),
        30,
        [MODEL],
    ),
    Quiet(
        "RadixgateTooFewWorkers",
        "they come",
        model("scale_desired_workers", "3x180") | model("candidates", "2x20 3x160"),
    ),
    Fires(
        "RadixgateScalerErrors",
        "each question fails",
        {'keda_scaled_object_errors_total{namespace="keda",scaledObject="r-worker-p"}': "0+4x60"},
        16,
        [{"scaledObject": "r-worker-p"}],
    ),
    Quiet(
        "RadixgateScalerErrors",
        "one fails, and another's fail",
        {
            'keda_scaled_object_errors_total{scaledObject="r-worker-p"}': "0x9 1x170",
            'keda_scaled_object_errors_total{scaledObject="shop"}': "0+4x180",
        },
    ),
    Fires("RadixgateWorkerDown", "it is down", worker("up", "0x60"), 15, [WORKER]),
    Quiet("RadixgateWorkerDown", "it restarts", worker("up", "1x9 0x9 1x160")),
    Fires(
        "RadixgateWorkerUnknown",
        "the gateway knows another",
        worker("info", "1x60", **INFO)
        | gateway("up", "1x60")
        | gateway("worker_trust", "1x60", model="m", worker="v", trust="live"),
        10,
        [WORKER | INFO],
    ),
    Fires(
        "RadixgateWorkerUnknown",
        "the gateway knows none",
        worker("info", "1x60", **INFO) | gateway("up", "1x60"),
        10,
        [WORKER | INFO],
    ),
    Quiet(
        "RadixgateWorkerUnknown",
        "it is known",
        worker("info", "1x180", **INFO)
        | gateway("up", "1x180")
        | gateway("worker_trust", "0x180", model="m", worker="w", trust="live"),
    ),
    Quiet(
        "RadixgateWorkerUnknown",
        "there is no gateway",
        worker("info", "1x180", **INFO) | gateway("up", "0x180"),
    ),
    Fires(
        "RadixgateWorkerRefused",
        "it is lost, and there",
        model("worker_trust", "1x60", worker="w", trust="lost"),
        5,
        [OF_WORKER],
    ),
    Quiet(
        "RadixgateWorkerRefused",
        "it is live",
        model("worker_trust", "1x180", worker="w", trust="live")
        | model("worker_trust", "0x180", worker="w", trust="lost"),
    ),
    Quiet(
        "RadixgateWorkerRefused",
        "its lease passed",
        model("worker_trust", "0x9 1x2 stale", worker="w", trust="lost"),
    ),
    Fires(
        "RadixgateWorkerDoubted",
        "two minutes of three",
        model("worker_trust", "1 1 0 " * 20, worker="w", trust="suspect"),
        15,
        [OF_WORKER],
    ),
    Quiet(
        "RadixgateWorkerDoubted",
        "one minute of three",
        model("worker_trust", "1 0 0 " * 60, worker="w", trust="suspect")
        | model("worker_trust", "0 1 1 " * 60, worker="w", trust="live"),
    ),
    Fires(
        "RadixgateCircuitOpen",
        "closed only by probes",
        model("worker_circuit_open", "1 1 1 0 " * 20, worker="w"),
        10,
        [OF_WORKER],
    ),
    Quiet(
        "RadixgateCircuitOpen",
        "five minutes",
        model("worker_circuit_open", "0x30 1x5 0x140", worker="w"),
    ),
    Fires(
        "RadixgatePreemptions",
        "1 in 5",
        worker("preemptions_total", "0+6x60") | worker("requests_total", "0+30x60", outcome="stop"),
        16,
        [WORKER],
    ),
    Fires(
        "RadixgatePreemptions",
        "none ends",
        worker("preemptions_total", "0+6x60") | worker("requests_total", "0x60", outcome="stop"),
        16,
        [WORKER],
    ),
    Quiet(
        "RadixgatePreemptions",
        "1 in 20",
        worker("preemptions_total", "0+1x180")
        | worker("requests_total", "0+10x180", outcome="stop")
        | worker("requests_total", "0+10x180", outcome="length"),
    ),
    Quiet(
        "RadixgatePreemptions",
        "nobody asks",
        worker("preemptions_total", "5x180") | worker("requests_total", "7x180", outcome="stop"),
    ),
    Fires(
        "RadixgateFragmentation",
        "half of what is used",
        worker("kv_fragmentation_ratio", "0.5x60")
        | worker("kv_used_bytes", "60x60")
        | worker("kv_total_bytes", "100x60"),
        30,
        [WORKER],
    ),
    Quiet(
        "RadixgateFragmentation",
        "less than half is used",
        worker("kv_fragmentation_ratio", "0.9x180")
        | worker("kv_used_bytes", "40x180")
        | worker("kv_total_bytes", "100x180"),
    ),
    Quiet(
        "RadixgateFragmentation",
        "a fifth of what is used",
        worker("kv_fragmentation_ratio", "0.2x180")
        | worker("kv_used_bytes", "60x180")
        | worker("kv_total_bytes", "100x180"),
    ),
    # A day must have passed, and half an hour of it.
    Fires("RadixgateReuseDropped", "90 % to 20 %", reuse((90, 10), (20, 80)), DAY + 91, [MODEL]),
    Quiet("RadixgateReuseDropped", "90 % to 70 %", reuse((90, 10), (70, 30))),
    Quiet("RadixgateReuseDropped", "prompts are new", reuse((90, 10), (90, 10), new=1000)),
    Quiet("RadixgateReuseDropped", "it is night", reuse((90, 10), (2, 8))),
    Quiet("RadixgateReuseDropped", "the day before was one of tests", reuse((9, 1), (20, 80))),
    Quiet("RadixgateReuseDropped", "it is the first day", fates(cached=600, evicted=60000)),
]
