"""What plots draw of a run: few points, however many requests and samples it has. Pure."""

from typing import NamedTuple

import numpy as np

from sim.results import Floats, Ints, Run
from sim.summary import ttfts

_POINTS = 400


class Series(NamedTuple):
    """Args: `x` and `y`, [K] each, x rising."""

    x: Floats
    y: Floats


class Heat(NamedTuple):
    """Args: `edges` [K + 1] of the times, rising; `values` [W, K], one row for each worker."""

    edges: Floats
    values: Floats


def cumulative_ttft(run: Run) -> Series:
    """Share of all requests that have their first token within so many seconds.

    It ends below 1 when requests were refused.
    """
    values = np.sort(ttfts(run))
    served = int(np.isfinite(values).sum())
    if not served:
        return Series(np.empty(0), np.empty(0))
    places = np.unique(np.linspace(0, served - 1, _POINTS).astype(np.int64))
    return Series(values[places], (places + 1) / len(values))


def hit_rate(run: Run, windows: int = 60) -> Series:
    """Share of prompt tokens that was cached, of what arrived in each window of time."""
    return _share(run, np.where(run.requests.worker >= 0, run.requests.cached, 0), windows)


def ideal_hit_rate(run: Run, windows: int = 60) -> Series:
    """The same, of one endless cache."""
    return _share(run, run.ideal_cached, windows)


def load(run: Run, windows: int = 120) -> Heat:
    """Requests that each worker has, running and waiting, mean of each window of time.

    A window without a sample continues the one before.
    """
    samples = run.samples
    if not len(samples.at):
        return Heat(np.array([0.0, 1.0]), np.zeros((samples.running.shape[1], 1)))
    edges = _edges(samples.at, min(windows, len(samples.at)))
    place = _window(samples.at, edges)
    counts = np.bincount(place, minlength=len(edges) - 1)
    sums = np.zeros((len(counts), samples.running.shape[1]))
    np.add.at(sums, place, samples.running + samples.waiting)
    # The first sample is in the first window, so each has one at or before it.
    latest = np.maximum.accumulate(np.where(counts > 0, np.arange(len(counts)), 0))
    return Heat(edges, (sums[latest] / counts[latest, None]).T)


def _share(run: Run, tokens: Ints, windows: int) -> Series:
    arrived, asked = run.requests.arrived, run.requests.prompt_tokens
    if not len(arrived):
        return Series(np.empty(0), np.empty(0))
    edges = _edges(arrived, windows)
    place = _window(arrived, edges)
    whole = np.bincount(place, weights=asked, minlength=windows)
    part = np.bincount(place, weights=tokens, minlength=windows)
    busy = whole > 0
    middles = (edges[:-1] + edges[1:]) / 2
    return Series(middles[busy], part[busy] / whole[busy])


def _edges(times: Floats, windows: int) -> Floats:
    first, last = float(times.min()), float(times.max())
    return np.linspace(first, max(last, first + 1e-9), windows + 1)


def _window(times: Floats, edges: Floats) -> Ints:
    """[N] the window of each time; the last one includes its end."""
    return np.clip(np.searchsorted(edges, times, side="right") - 1, 0, len(edges) - 2)
