"""`radixgate simulate`: traces through routing policies, on workers in virtual time."""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from cli import options
from cli import simulate_options as asked
from cli.calibrate import measure
from cli.exits import CommandError, ExitCode
from cli.extras import needs
from cli.output import notes, print_json
from cli.sheets import print_sheet

if TYPE_CHECKING:
    from sim.experiment import Case
    from sim.request import Trace
    from sim.results import Run


def simulate(
    *,
    trace: asked.Traces = None,
    format_: asked.Format = None,
    first: asked.First = None,
    policy: asked.Policies = "cost,round_robin",
    sweep: asked.Sweep = None,
    workers: asked.Workers = None,
    worker: asked.Worker = None,
    kv_format: asked.KvFormat = None,
    kv_blocks: asked.KvBlocks = None,
    block_size: asked.BlockSize = None,
    eviction: asked.Eviction = None,
    max_running: asked.MaxRunning = None,
    token_budget: asked.TokenBudget = None,
    chunk_ms: asked.ChunkMs = None,
    stride: asked.Stride = None,
    load: asked.Load = None,
    speed: asked.Speed = None,
    closed_loop: asked.ClosedLoop = None,
    service_ms: asked.ServiceMs = None,
    seed: asked.Seed = 0,
    jobs: asked.Jobs = None,
    slo_ttft_ms: asked.SloTtft = 2000.0,
    slo_itl_ms: asked.SloItl = 50.0,
    slo_share: asked.SloShare = 0.9,
    price: asked.Price = None,
    html: asked.Html = None,
    as_json: options.Json = False,
    calibrate: asked.Calibrate = None,
    gateway: asked.Gateway = None,
    out: asked.Out = None,
) -> None:
    """Replay traces with several routing policies, on workers in virtual time.

    The gateway's and the workers' own code decides; only how long a model computes is a formula,
    of presets or measured by --calibrate.
    """
    with needs("sim"):
        from sim.plan import Ask, cases, groups, policy_names, read_traces, saturating_cases
        from sim.report.json import document
        from sim.report.sweep import by_trace, sweep_sheet
        from sim.report.table import sheets
        from sim.summary import Slo, summarize
    if calibrate is not None:
        measure(
            calibrate,
            out,
            gateway=gateway,
            max_running=max_running,
            token_budget=token_budget,
            chunk_ms=chunk_ms,
            eviction=eviction,
        )
        return
    if gateway is not None:
        raise CommandError("--gateway is of a worker to --calibrate: leave it out", ExitCode.USAGE)
    if not trace:
        raise CommandError("nothing to simulate: give a --trace", ExitCode.USAGE)
    if out is not None:
        raise CommandError("--out is where --calibrate writes: leave it out", ExitCode.USAGE)
    if price is not None and sweep is None:
        raise CommandError("--price is what a sweep counts cost by: give a --sweep", ExitCode.USAGE)
    if html is not None:
        _check_report(html)
    values = {
        "workers": workers,
        "worker": worker,
        "kv_format": kv_format,
        "eviction": eviction,
        "speed": speed,
        "kv_blocks": kv_blocks,
        "block_size": block_size,
        "max_running": max_running,
        "token_budget": token_budget,
        "chunk_ms": chunk_ms,
    }
    ask = Ask(
        values={name: str(value) for name, value in values.items() if value is not None},
        sweep=_axes(sweep, load),
        closed_loop=closed_loop,
        service_seconds=None if service_ms is None else service_ms / 1000,
        stride=stride,
        seed=seed,
    )
    slo = Slo(slo_ttft_ms / 1000, slo_itl_ms / 1000, slo_share)
    with _usage_errors():
        policies = policy_names(policy)
        traces = read_traces(trace, format_, first)
        planned = groups(ask, traces)
    at_once = jobs or os.cpu_count() or 1
    saturated = _simulate(traces, saturating_cases(planned), at_once, "what workers can serve")
    with _usage_errors():
        wanted = cases(planned, policies, saturated)
    runs = _simulate(traces, wanted, at_once, "policies")
    command = shlex.join(["radixgate", *sys.argv[1:]])
    summaries = [summarize(run, slo) for run in runs]
    # NOTE: before anything is printed, for who reads that may close it in the midst of it.
    if html is not None:
        from sim.report.html import comparison_report, sweep_report

        report = (
            sweep_report(summaries, slo, price, command)
            if sweep
            else comparison_report(runs, slo, command)
        )
        _write(html, report)
    if as_json:
        print_json(document(summaries, slo, command))
    else:
        swept = [sweep_sheet(each, slo, price) for each in by_trace(summaries).values()]
        for sheet in swept if sweep else sheets(summaries, slo):
            print_sheet(sheet)


def _axes(sweep: str | None, load: str | None) -> list[str]:
    """What is varied, as `sim.sweep` takes it."""
    for option, text in (("--sweep", sweep), ("--load", load)):
        if text is not None and not text.strip():
            raise CommandError(
                f"{option} is empty: say what to vary, or leave it out", ExitCode.USAGE
            )
    return [*(sweep or "").split(), *([] if load is None else [f"load={load}"])]


def _check_report(path: Path) -> None:
    """Refuse what `_write` could not write, before there is a report."""
    why = None
    if path.is_dir():
        why = "it is a directory; name a file"
    elif not path.parent.is_dir():
        why = f"there is no directory {path.parent}; make it first"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        why = "that is not permitted"
    if why is not None:
        raise CommandError(f"--html {path}: the report cannot be written: {why}", ExitCode.USAGE)


@contextmanager
def _usage_errors() -> Iterator[None]:
    """What is wrong with what was asked for is said as such."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise CommandError(str(error), ExitCode.USAGE) from error


def _simulate(
    traces: "Sequence[Trace]", cases: "Sequence[Case]", jobs: int, what: str
) -> "list[Run]":
    """All runs, with a bar at the terminal."""
    if not cases:
        return []
    from concurrent.futures.process import BrokenProcessPool

    from sim.experiment import play

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=notes, transient=True) as bars:
        total = sum(len(traces[case.trace].requests) for case in cases)
        bar = bars.add_task(what, total=total)
        try:
            return play(traces, cases, jobs, lambda more: bars.advance(bar, more))
        except BrokenProcessPool as error:
            raise CommandError(
                "a process of the simulation was killed, as a machine does that runs out of "
                "memory; use fewer --jobs, or --first"
            ) from error
        except RuntimeError as error:
            raise CommandError(f"the simulation cannot go on: {error}") from error


def _write(path: Path, report: str) -> None:
    try:
        path.write_text(report, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"the report cannot be written: {error}") from error
    notes.print(f"wrote {path}", markup=False)
