"""The plot of a sweep: p90 TTFT against cost, and the cheapest run that meets the SLO."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes

from sim.report.svg import INK, PAPER, drawn, line_style, plain_numbers
from sim.report.sweep import cheapest, cost, lines, meets
from sim.summary import Slo, Summary


def sweep_plot(name: str, summaries: Sequence[Summary], slo: Slo, price: float | None) -> str:
    """One line for each setting but the number of workers; dots are full where the SLO is met.

    Runs whose p90 is endless, since they refused so many requests, have no dot.
    """

    def draw(axes: list[Axes]) -> None:
        (ax,) = axes
        for place, (label, members) in enumerate(lines(summaries).items()):
            shown = [each for each in members if math.isfinite(each.ttft.p90)]
            style = line_style(place)
            x = [cost(each, price) for each in shown]
            ax.plot(x, [each.ttft.p90 for each in shown], label=label, **style)
            for each in shown:
                ax.plot(
                    cost(each, price),
                    each.ttft.p90,
                    marker="o",
                    color=style["color"],
                    markerfacecolor=style["color"] if meets(each, slo) else PAPER,
                )
        ax.axhline(slo.ttft_seconds, color=INK, linewidth=1, linestyle=":", label="SLO's TTFT")
        best = cheapest(summaries, slo)
        if best is not None:
            ax.plot(
                cost(best, price),
                best.ttft.p90,
                marker="o",
                markersize=14,
                markerfacecolor="none",
                color=INK,
                linestyle="none",
                label="cheapest that\nmeets the SLO",
            )
        ax.set(yscale="log", ylabel="p90 TTFT, seconds")
        ax.set(xlabel="GPUs" if price is None else "cost of an hour")
        plain_numbers(ax.yaxis)
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))

    return drawn(
        name,
        "p90 TTFT against cost",
        "A line for each setting and a dot for each number of workers, full where the SLO is met; "
        "further down is faster, further left is cheaper. " + _conclusion(cheapest(summaries, slo)),
        draw,
        panel_size=(9.6, 4.2),
    )


def _conclusion(best: Summary | None) -> str:
    if best is None:
        return "None meets the SLO."
    settings = ", ".join(f"{name} {value}" for name, value in best.settings.items())
    return f"The cheapest that meets the SLO: {best.policy}, {settings}, {best.gpus} GPUs."
