"""Reports as pages: of policies that are compared, and of a sweep over settings."""

from collections.abc import Sequence

from sim.report.page import Section, figure, page, table
from sim.report.plots import fate_plot, hit_rate_plot, load_plot, ttft_plot
from sim.report.sweep import by_trace, sweep_sheet
from sim.report.sweep_plot import sweep_plot
from sim.report.table import common_settings, groups, sheets, slo_label
from sim.results import Run
from sim.summary import Slo, Summary, summarize


def comparison_report(runs: Sequence[Run], slo: Slo, command: str = "") -> str:
    """A self-contained HTML document.

    Args:
        runs: at least one; those of one trace and setting are compared.
        slo: by which goodput is counted.
        command: that made the runs.
    """
    summaries = [summarize(run, slo) for run in runs]
    sections = []
    for place, group in enumerate(groups(summaries)):
        members = [summaries[member] for member in group.members]
        member_runs = [runs[member] for member in group.members]
        plots = [
            figure("Cumulative TTFT", ttft_plot(f"ttft-{place}", member_runs, slo)),
            figure("Fate of prompt tokens", fate_plot(f"fate-{place}", members)),
            figure("Hit rate over time", hit_rate_plot(f"hits-{place}", member_runs)),
            figure("Load of each worker over time", load_plot(f"load-{place}", member_runs)),
        ]
        sections.append(Section(group.title, [*map(table, sheets(members, slo)), *plots]))
    return page("Routing policies, simulated", command, _facts(summaries, slo), sections)


def sweep_report(
    summaries: Sequence[Summary], slo: Slo, price: float | None = None, command: str = ""
) -> str:
    """A self-contained HTML document.

    Args:
        summaries: at least one; those of one trace share a plot.
        slo: that is to be met.
        price: of one GPU for one hour, in any currency; None to count GPUs.
        command: that made the runs.
    """
    sections = []
    for place, (trace, members) in enumerate(by_trace(summaries).items()):
        plot = sweep_plot(f"sweep-{place}", members, slo, price)
        holds = [table(sweep_sheet(members, slo, price)), figure("p90 TTFT against cost", plot)]
        sections.append(Section(trace, holds))
    return page("Workers and settings, simulated", command, _facts(summaries, slo), sections)


def _facts(summaries: Sequence[Summary], slo: Slo) -> dict[str, str]:
    """What is the same for all runs, for the head of a page."""
    requests = {f"{summary.requests:,}" for summary in summaries}
    gpus = {str(summary.gpus) for summary in summaries}
    same = {"requests": requests, "GPUs": gpus}
    return {
        "trace": ", ".join(dict.fromkeys(summary.trace for summary in summaries)),
        **common_settings(summaries),
        **{name: values.pop() for name, values in same.items() if len(values) == 1},
        "SLO": slo_label(slo),
    }
