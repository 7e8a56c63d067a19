"""Runs for tests of what is made of runs: synthetic, from a seed, without a simulator."""

from random import Random

import numpy as np

from sim.results import Floats, Ints, Requests, Run, Samples, Workers


def synthetic_run(
    policy: str = "cost",
    *,
    trace: str = "chats",
    settings: dict[str, str] | None = None,
    count: int = 200,
    workers: int = 4,
    gpus: int = 4,
    refused: float = 0.0,
    slowness: float = 1.0,
    seed: int = 0,
) -> Run:
    """Requests of random lengths and times; all that must add up does.

    Args: `refused`, share of the requests; `slowness`, by which all of its delays are multiplied.
    """
    rng = Random(seed)
    requests = [_request(rng, workers, refused, slowness) for _ in range(count)]
    table = np.array(requests, np.float64).reshape(count, len(_FIELDS))
    columns = dict(zip(_FIELDS, table.T, strict=True))
    columns["arrived"] = np.cumsum(columns["arrived"])
    for name in _TIMES[1:]:
        columns[name] = columns["arrived"] + columns[name]
    whole = {name: columns[name].astype(np.int64) for name in _FIELDS[len(_TIMES) :]}
    times = {name: columns[name] for name in _TIMES}
    each = Requests(**times, **whole)
    gaps = np.unique([rng.uniform(0.005, 0.1) * slowness for _ in range(min(count, 50))])
    return Run(
        policy=policy,
        trace=trace,
        settings=dict(settings or {"workers": str(workers)}),
        gpus=gpus,
        requests=each,
        workers=_workers(rng, each, workers),
        samples=_samples(rng, each, workers),
        gaps=gaps,
        gap_counts=np.array([rng.randint(1, 90) for _ in gaps], np.int64),
        ideal_cached=each.prompt_tokens - each.new // 2,
        wall_seconds=rng.random(),
        refusals={"full": int((each.worker < 0).sum())} if (each.worker < 0).any() else {},
    )


_TIMES = ("arrived", "sent", "started", "first_token", "ended")
_FATES = ("cached", "stale", "elsewhere", "evicted", "new")
_FIELDS = (*_TIMES, "worker", "prompt_tokens", *_FATES, "output_tokens", "preemptions")


def _request(rng: Random, workers: int, refused: float, slowness: float) -> list[float]:
    """Values of `_FIELDS`; `arrived` since the request before, the other times since `arrived`."""
    prompt = rng.randint(1, 4000)
    cuts = sorted(rng.randint(0, prompt) for _ in range(4))
    fates = [stop - start for start, stop in zip([0, *cuts], [*cuts, prompt], strict=True)]
    gap = rng.expovariate(2)
    if rng.random() < refused:
        nan = float("nan")
        return [gap, nan, nan, nan, nan, -1, prompt, *fates, rng.randint(1, 500), 0]
    output = rng.randint(1, 500)
    waits = [slowness * rng.expovariate(each) for each in (20, 10, 2)]
    sent, started, first = np.cumsum(waits)
    ended = first + (output - 1) * rng.uniform(0.01, 0.06) * slowness
    worker, lost = rng.randrange(workers), rng.random() < 0.1
    return [gap, sent, started, first, ended, worker, prompt, *fates, output, lost]


def _workers(rng: Random, requests: Requests, workers: int) -> Workers:
    counts = np.bincount(requests.worker[requests.worker >= 0], minlength=workers)
    return Workers(
        busy_seconds=counts * rng.uniform(0.1, 0.3),
        steps=counts * 7,
        evicted_blocks=counts * rng.randint(0, 5),
        requests=counts,
    )


def _samples(rng: Random, requests: Requests, workers: int) -> Samples:
    at: Floats = np.arange(0.0, float(requests.arrived.max(initial=0.0)) + 1, 0.5)

    def counts(most: int) -> Ints:
        return np.array([[rng.randint(0, most) for _ in range(workers)] for _ in at], np.int64)

    return Samples(at, counts(8), counts(3), counts(900), counts(20)[:, 0])
