"""Plots that compare policies on one trace: waiting, hits over time, fates of tokens, load."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.ticker import MaxNLocator

from sim.report.series import cumulative_ttft, hit_rate, ideal_hit_rate, load
from sim.report.svg import INK, SERIES, drawn, line_style, plain_numbers
from sim.results import Run
from sim.summary import Slo, Summary

_FATES = {
    "cached": "#2a9d5c",
    "stale": "#c23b80",
    "elsewhere": "#d9622b",
    "evicted": "#a88300",
    "new": "#8a93a0",
    "unserved": "#3f4650",
}

_HEAT = LinearSegmentedColormap.from_list(
    "load", [to_rgba(SERIES[1], 0.0), to_rgba(SERIES[1], 0.45), to_rgba(SERIES[3], 1.0)]
)


def ttft_plot(name: str, runs: Sequence[Run], slo: Slo) -> str:
    """How many requests have their first token after how long."""

    def draw(axes: list[Axes]) -> None:
        (ax,) = axes
        for place, run in enumerate(runs):
            seconds, share = cumulative_ttft(run)
            # NOTE: an answer at once has no place on a logarithmic axis.
            ax.plot(np.maximum(seconds, 1e-4), 100 * share, label=run.policy, **line_style(place))
        ax.axvline(slo.ttft_seconds, color=INK, linewidth=1, linestyle=":", label="SLO")
        ax.set(xscale="log", xlabel="seconds to the first token", ylabel="% of requests")
        ax.set(ylim=(0, 101))
        plain_numbers(ax.xaxis)
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))

    return drawn(
        name,
        "Cumulative TTFT",
        "Share of requests that have their first token within a time, a line for each policy; "
        "further left is better.",
        draw,
        panel_size=(9.6, _legend_height(runs)),
    )


def hit_rate_plot(name: str, runs: Sequence[Run]) -> str:
    """Hits of what arrived in each window of time, with that of one endless cache."""

    def draw(axes: list[Axes]) -> None:
        (ax,) = axes
        for place, run in enumerate(runs):
            times, rate = hit_rate(run)
            ax.plot(times, 100 * rate, label=run.policy, **line_style(place))
        times, rate = ideal_hit_rate(runs[0])
        ax.plot(times, 100 * rate, color=INK, linewidth=1, linestyle=":", label="ideal")
        ax.set(xlabel="seconds of the trace", ylabel="% of prompt tokens", ylim=(0, 101))
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))

    return drawn(
        name,
        "Hit rate over time",
        "Share of the prompt tokens arriving in a window of time that were cached, a line for each "
        "policy, and a dotted one for an endless cache; higher is better.",
        draw,
        panel_size=(9.6, _legend_height(runs)),
    )


def fate_plot(name: str, summaries: Sequence[Summary]) -> str:
    """What became of the prompt tokens, and the most that could be cached."""
    shares = {fate: np.array([_share(summary, fate) for summary in summaries]) for fate in _FATES}

    def draw(axes: list[Axes]) -> None:
        (ax,) = axes
        policies = [summary.policy for summary in summaries]
        start = np.zeros(len(summaries))
        for fate, colour in _FATES.items():
            if fate == "unserved" and not shares[fate].any():
                continue
            ax.barh(policies, shares[fate], left=start, color=colour, label=fate, height=0.7)
            start += shares[fate]
        ideal = 100 * summaries[0].ideal_hit_rate
        ax.axvline(ideal, color=INK, linewidth=1, linestyle=":", label="ideal")
        ax.set(xlabel="% of prompt tokens", xlim=(0, 100))
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))

    return drawn(
        name,
        "Fate of prompt tokens",
        "For each policy a bar of the shares of prompt tokens that were cached, or missed as "
        "stale, elsewhere, evicted or new; the dotted line is the most that could be cached.",
        draw,
        panel_size=(9.6, 1.2 + 0.32 * len(summaries)),
    )


def load_plot(name: str, runs: Sequence[Run]) -> str:
    """Requests of each worker over time, a panel for each policy, on one scale."""
    heats = [load(run) for run in runs]
    most = max(1.0, *(float(heat.values.max(initial=0.0)) for heat in heats))

    def draw(axes: list[Axes]) -> None:
        for ax, run, (edges, values) in zip(axes, runs, heats, strict=True):
            image = ax.imshow(
                values,
                aspect="auto",
                interpolation="nearest",
                cmap=_HEAT,
                vmin=0,
                vmax=most,
                extent=(edges[0], edges[-1], len(values) - 0.5, -0.5),
            )
            ax.set(title=run.policy, ylabel="worker")
            ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            ax.grid(visible=False)
        axes[-1].set(xlabel="seconds of the trace")
        bar = axes[0].figure.colorbar(
            image, ax=axes, label="requests", pad=0.01, fraction=0.03, aspect=8 * len(axes)
        )
        bar.outline.set_visible(False)

    return drawn(
        name,
        "Load of each worker over time",
        "A panel for each policy and in it a row for each worker; the darker, the more requests it "
        "has, running and waiting. Even rows are balanced workers.",
        draw,
        panels=len(runs),
        panel_size=(9.6, 1.5),
    )


def _legend_height(runs: Sequence[Run]) -> float:
    """Inches of a plot, so that its legend has room for all policies and one more line."""
    return max(3.6, 0.5 + 0.22 * (len(runs) + 1))


def _share(summary: Summary, fate: str) -> float:
    return 100 * float(summary.hit_rate if fate == "cached" else getattr(summary, fate))
