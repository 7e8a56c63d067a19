"""The options of `radixgate simulate`."""

import math
from pathlib import Path
from typing import Annotated

import typer

_WHAT, _WORKERS, _TIMES, _OUTPUT = "What is compared", "The workers", "The clients", "The results"
_MEASURE = "Measuring a worker"


def _finite(number: float | None) -> float | None:
    """What has no most would also be endless."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is not finite.")
    return number


Traces = Annotated[
    list[str] | None,
    typer.Option(
        "--trace",
        metavar="FILE|NAME:SETTING=VALUE,…",
        help="A trace, or a generator: shared, chat, rag, agents, unique; may be repeated.",
        rich_help_panel=_WHAT,
    ),
]
Format = Annotated[
    str | None,
    typer.Option("--format", help="Of the files; seen from their rows.", rich_help_panel=_WHAT),
]
First = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Take the first N requests.", rich_help_panel=_WHAT),
]
Policies = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="NAME,…",
        help="Policies, or all; cost takes constants, as in cost:wait=0.5/tie_ms=2.",
        rich_help_panel=_WHAT,
    ),
]
Sweep = Annotated[
    str | None,
    typer.Option(
        metavar="'NAME=VALUES …'",
        help="Vary settings, as in 'workers=2..16 kv_format=none,int8'. Names are those of "
        "options, with _ for -, and worker, load, speed.",
        rich_help_panel=_WHAT,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, show_default="8", help="How many there are.", rich_help_panel=_WORKERS),
]
Worker = Annotated[
    str | None,
    typer.Option(
        metavar="PRESET|FILE",
        show_default="h100-llama-8b",
        help="What each is: a GPU and a model, or a file that --calibrate wrote.",
        rich_help_panel=_WORKERS,
    ),
]
KvFormat = Annotated[
    str | None,
    typer.Option(
        show_default="none",
        help="How presets keep KV: none (as the model computes it, in bf16), fp8, int8, k8v4, "
        "int4.",
        rich_help_panel=_WORKERS,
    ),
]
KvBlocks = Annotated[
    str | None,
    typer.Option(metavar="N|endless", help="KV blocks of each worker.", rich_help_panel=_WORKERS),
]
BlockSize = Annotated[
    int | None,
    typer.Option(min=1, metavar="TOKENS", help="Tokens in a block.", rich_help_panel=_WORKERS),
]
Eviction = Annotated[
    str | None, typer.Option(help="Which blocks go first: lru, cost.", rich_help_panel=_WORKERS)
]
MaxRunning = Annotated[
    int | None,
    typer.Option(min=1, help="Requests that one computes at once.", rich_help_panel=_WORKERS),
]
TokenBudget = Annotated[
    int | None, typer.Option(min=1, help="Tokens of one step.", rich_help_panel=_WORKERS)
]
ChunkMs = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        callback=_finite,
        help="By so much at most the prompts in one step delay its answers.",
        rich_help_panel=_WORKERS,
    ),
]
Stride = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="TOKENS",
        help="From one boundary to the next, in whole KV blocks. Default: the least multiple of "
        "the block size that is at least 64 and the trace's own block.",
        rich_help_panel=_WORKERS,
    ),
]
Load = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE,…",
        help="Replay faster or slower, so that requests come at this share of the rate that the "
        "workers can serve at most.",
        rich_help_panel=_TIMES,
    ),
]
Speed = Annotated[
    float | None,
    typer.Option(
        min=1e-6,
        callback=_finite,
        help="Divide the times of the trace by it.",
        rich_help_panel=_TIMES,
    ),
]
ClosedLoop = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1_000_000,
        metavar="N",
        help="Keep N requests under way, and ignore the times of the trace.",
        rich_help_panel=_TIMES,
    ),
]
ServiceMs = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        callback=_finite,
        help="Every request takes so long: only hit rates and balance mean something.",
        rich_help_panel=_TIMES,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        help="For policies that draw; a generator has a seed= of its own.",
        rich_help_panel=_TIMES,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1, help="Simulations at once; by default one for each CPU.", rich_help_panel=_OUTPUT
    ),
]
SloTtft = Annotated[
    float,
    typer.Option(
        min=0.001,
        callback=_finite,
        help="Objective: TTFT of a request.",
        rich_help_panel=_OUTPUT,
    ),
]
SloItl = Annotated[
    float,
    typer.Option(
        min=0.001,
        callback=_finite,
        help="Objective: mean ITL of a request.",
        rich_help_panel=_OUTPUT,
    ),
]
SloShare = Annotated[
    float,
    typer.Option(
        min=0.001,
        max=1,
        help="Share of requests that is to keep both, where a sweep looks for the cheapest.",
        rich_help_panel=_OUTPUT,
    ),
]
Price = Annotated[
    float | None,
    typer.Option(
        min=0,
        callback=_finite,
        help="Of one GPU for an hour: a sweep counts cost in it.",
        rich_help_panel=_OUTPUT,
    ),
]
Html = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.html", help="Write a report with plots, too.", rich_help_panel=_OUTPUT
    ),
]
Calibrate = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Measure a live, idle worker instead of simulating.",
        rich_help_panel=_MEASURE,
    ),
]
Gateway = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The gateway of this worker: what a request takes on its way there counts, too.",
        rich_help_panel=_MEASURE,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json", help="Where the measured worker goes.", rich_help_panel=_MEASURE
    ),
]
