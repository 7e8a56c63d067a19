"""How many workers and which settings: what a sweep found, and the cheapest that is enough. Pure.

Cost is that of the GPUs, which the best of a column, where the most workers win, would hide: a
sheet marks the cheapest that meets the SLO, and nothing else.
"""

from collections.abc import Sequence
from dataclasses import replace

from sim.report.columns import GOOD_SHARE, GOODPUT, HIT_RATE, ITL_P90, TTFT_P90
from sim.report.table import (
    Cell,
    Header,
    Sheet,
    cells,
    common_settings,
    header,
    refusals,
    slo_label,
)
from sim.summary import Slo, Summary

_SIZE = "workers"
_MEASURED = [
    replace(column, better=None) for column in (TTFT_P90, ITL_P90, HIT_RATE, GOODPUT, GOOD_SHARE)
]


def by_trace(summaries: Sequence[Summary]) -> dict[str, list[Summary]]:
    """The summaries of each trace, as they come."""
    traces: dict[str, list[Summary]] = {}
    for summary in summaries:
        traces.setdefault(summary.trace, []).append(summary)
    return traces


def meets(summary: Summary, slo: Slo) -> bool:
    """Whether enough of its requests keep the SLO."""
    return summary.good_share >= slo.share


def cheapest(summaries: Sequence[Summary], slo: Slo) -> Summary | None:
    """Of those that meet the SLO the one with the fewest GPUs, and of these the fastest."""
    enough = [summary for summary in summaries if meets(summary, slo)]
    return min(enough, key=lambda summary: (summary.gpus, summary.ttft.p90), default=None)


def cost(summary: Summary, price: float | None) -> float:
    """Of all its GPUs for an hour; how many they are when there is no price."""
    return summary.gpus if price is None else summary.gpus * price


def lines(summaries: Sequence[Summary]) -> dict[str, list[Summary]]:
    """What is one line of the plot, by its label: equal but for the number of workers.

    Each is sorted by its GPUs.
    """
    varied = [name for name in _varied(summaries) if name != _SIZE]
    found: dict[str, list[Summary]] = {}
    for summary in sorted(summaries, key=lambda summary: summary.gpus):
        label = ", ".join(_setting(summary, name) for name in varied)
        found.setdefault(label or summary.policy, []).append(summary)
    return found


def sweep_sheet(summaries: Sequence[Summary], slo: Slo, price: float | None = None) -> Sheet:
    """A row for each run of one trace, in their order.

    Args:
        summaries: at least one.
        slo: that is to be met.
        price: of one GPU for one hour, in any currency; None to leave cost away.
    """
    varied = _varied(summaries)
    best = cheapest(summaries, slo)
    names = [[Cell(_setting(summary, name)) for summary in summaries] for name in varied]
    gpus = [Cell(str(summary.gpus), summary.gpus) for summary in summaries]
    costs = [Cell(f"{cost(summary, price):,.2f}", cost(summary, price)) for summary in summaries]
    verdicts = [_verdict(summary, slo, summary is best) for summary in summaries]
    columns = [
        *names,
        gpus,
        *([costs] if price is not None else []),
        *(cells(column, summaries) for column in _MEASURED),
        verdicts,
    ]
    headers = [
        *(Header(name, numbers=False) for name in varied),
        Header("GPUs", "of all workers"),
        *([Header("cost\nan hour", "of all GPUs")] if price is not None else []),
        *map(header, _MEASURED),
        Header("SLO\nmet", f"by {100 * slo.share:g} % of all requests", numbers=False),
    ]
    title = f"{summaries[0].trace}: {100 * slo.share:g} % with {slo_label(slo)}"
    return Sheet(title, headers, list(zip(*columns, strict=True)), refusals(summaries))


def _varied(summaries: Sequence[Summary]) -> list[str]:
    """What tells the runs apart: the policy, and settings by their names."""
    common = common_settings(summaries)
    settings = dict.fromkeys(name for summary in summaries for name in summary.settings)
    policies = {summary.policy for summary in summaries}
    own = [name for name in settings if name not in common]
    return ["policy", *own] if len(policies) > 1 or not own else own


def _setting(summary: Summary, name: str) -> str:
    return summary.policy if name == "policy" else summary.settings.get(name, "")


def _verdict(summary: Summary, slo: Slo, best: bool) -> Cell:
    met = meets(summary, slo)
    return Cell("cheapest" if best else "yes" if met else "no", best=best)
