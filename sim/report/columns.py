"""The numbers that tables show of a summary: their names, units and meaning."""

from collections.abc import Callable
from dataclasses import dataclass

from sim.summary import Spread, Summary


@dataclass(frozen=True, slots=True)
class Column:
    """Args:
    header: two lines, parted by a line break: the group that it belongs to, and its own name.
    meaning: a sentence.
    value: of a summary, in the unit of the header.
    decimals: shown.
    better: `max` or `min` of its values is the best; None when more and less are both right.
    """

    header: str
    meaning: str
    value: Callable[[Summary], float]
    decimals: int = 0
    better: Callable[[list[float]], float] | None = None


def _missed(kind: str, whose: str, share: Callable[[Summary], float]) -> Column:
    meaning = f"share of prompt tokens that {whose}"
    return Column(f"missed %\n{kind}", meaning, lambda of: 100 * share(of), decimals=1, better=min)


def _ttft(name: str, value: Callable[[Spread], float], meaning: str) -> Column:
    return Column(f"TTFT s\n{name}", meaning, lambda of: value(of.ttft), decimals=3, better=min)


def _itl(name: str, value: Callable[[Spread], float], meaning: str) -> Column:
    meaning = f"between two tokens of an answer: {meaning}"
    return Column(f"ITL ms\n{name}", meaning, lambda of: 1000 * value(of.itl), 1, min)


GOODPUT = Column(
    "good\nreq/s", "requests a second that keep the SLO", lambda of: of.goodput, 2, max
)
GOOD_SHARE = Column(
    "good\n%", "share of all requests that keep the SLO", lambda of: 100 * of.good_share, 1, max
)
TTFT_P90 = _ttft(
    "p90",
    lambda of: of.p90,
    "90 of 100 requests have their first token by then; refused ones never",
)
ITL_P90 = _itl("p90", lambda of: of.p90, "90 of 100 are no longer")
HIT_RATE = Column(
    "hit\n%",
    "share of prompt tokens that the chosen worker had cached",
    lambda of: 100 * of.hit_rate,
    decimals=1,
    better=max,
)

LATENCY = (
    _ttft("mean", lambda of: of.mean, "from arrival to the first token, mean of served requests"),
    _ttft("p50", lambda of: of.p50, "half of all requests have their first token by then"),
    TTFT_P90,
    _ttft("p99", lambda of: of.p99, "99 of 100 requests have their first token by then"),
    _itl("mean", lambda of: of.mean, "mean"),
    _itl("p50", lambda of: of.p50, "half of all are no longer"),
    ITL_P90,
    _itl("p99", lambda of: of.p99, "99 of 100 are no longer"),
)

CACHE = (
    HIT_RATE,
    _missed("stale", "the worker lacked, though its summary said otherwise", lambda of: of.stale),
    _missed("elsewhere", "only another worker had", lambda of: of.elsewhere),
    _missed("evicted", "a worker had until it needed the room", lambda of: of.evicted),
    Column(
        "missed %\nnew",
        "share of prompt tokens that no worker had ever had",
        lambda of: 100 * of.new,
        decimals=1,
    ),
    Column(
        "blocks\nevicted",
        "KV blocks evicted, of all workers",
        lambda of: of.evicted_blocks,
        better=min,
    ),
)

SERVICE = (
    GOODPUT,
    GOOD_SHARE,
    Column(
        "max/mean\nrequests",
        "requests of the worker with most, over the mean of all workers",
        lambda of: of.request_imbalance,
        decimals=2,
        better=min,
    ),
    Column(
        "max/mean\nbusy",
        "time in which the busiest worker computed, over the mean of all workers",
        lambda of: of.busy_imbalance,
        decimals=2,
        better=min,
    ),
    Column(
        "busy\n%",
        "share of the time in which workers computed, mean of all workers",
        lambda of: 100 * of.utilisation,
        decimals=1,
    ),
    Column(
        "pre-\nempted",
        "how often a running request lost its blocks",
        lambda of: of.preemptions,
        better=min,
    ),
    Column("re-\nfused", "requests that no worker was given", lambda of: of.refused, better=min),
)
