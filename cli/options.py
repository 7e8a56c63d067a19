"""Options that several commands share."""

from typing import Annotated

import typer

from cli.sizes import parse_size
from worker.model.weights import WeightFormat


def size(text: str | int, *, allow_zero: bool = False) -> int:
    """The parser of options that are sizes."""
    try:
        return parse_size(str(text), allow_zero=allow_zero)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Gateway = Annotated[
    str,
    typer.Option("--gateway", envvar="RADIXGATE_GATEWAY", metavar="HOST:PORT", help="Any gateway."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Model = Annotated[str | None, typer.Option(help="The model to ask, when there are several.")]
Timeout = Annotated[
    float | None, typer.Option(min=0.001, metavar="SECONDS", help="Give up after so long.")
]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, max=2**32 - 1, help="The most tokens to generate.")
]
Temperature = Annotated[float, typer.Option(help="0 always takes the likeliest token.")]
TopP = Annotated[float | None, typer.Option(help="Keep tokens that make up this probability.")]
TopK = Annotated[
    int | None,
    typer.Option(min=0, max=2**32 - 1, help="Keep so many of the likeliest tokens; 0 keeps all."),
]
Seed = Annotated[
    int | None, typer.Option(min=0, max=2**64 - 1, help="Equal seeds give equal answers.")
]
Stop = Annotated[list[str] | None, typer.Option(help="End before this text; may be repeated.")]
Priority = Annotated[
    int,
    typer.Option(
        min=-(2**31), max=2**31 - 1, help="Higher goes first where requests wait; 0 is normal."
    ),
]
Tenant = Annotated[str | None, typer.Option(help="Share cached context with this tenant alone.")]
Salt = Annotated[str | None, typer.Option(help="Share cached context with this salt alone.")]
Host = Annotated[str, typer.Option(help="The interface to listen on.")]
MetricsPort = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Serve Prometheus metrics here.")
]
Grace = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="At the end, let requests run so long.")
]
Redis = Annotated[
    str | None,
    typer.Option(
        "--redis",
        envvar="RADIXGATE_REDIS",
        metavar="URL",
        help="The Redis of all gateways: redis://HOST:PORT, rediss://…, unix://… or, behind "
        "Sentinels, redis+sentinel://HOST:PORT,…/MASTER; without it, an embedded one.",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="DEVICE", help="What computes: cpu, cuda, cuda:N, or auto: a GPU if there is one."
    ),
]
Weights = Annotated[
    WeightFormat,
    typer.Option(
        help="How a CPU keeps the weights; int8 takes less than a third of the memory, is faster "
        "at few requests, and not exact."
    ),
]
KvFormat = Annotated[
    str,
    typer.Option(
        metavar="FORMAT",
        help="How KV is kept: none (as computed), fp8, int8, int4, k8v4, or keys/values as "
        "in int8/fp8.",
    ),
]
KvFormatLayers = Annotated[
    str,
    typer.Option(
        metavar="LAYERS:FORMAT,…", help="Layers kept in another format, as in 0-1,28-29:none."
    ),
]
KvMemory = Annotated[
    int,
    typer.Option(
        parser=size,
        metavar="SIZE",
        show_default="512MiB",
        help="Memory for the KV blocks of a worker.",
    ),
]
