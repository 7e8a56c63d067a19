"""`radixgate plan`: how many tokens and requests fit into a memory, in each KV format."""

from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.markup import escape
from rich.table import Table

from cli import options
from cli.bars import Bar, Panel, bar_chart
from cli.exits import CommandError, ExitCode
from cli.extras import needs
from cli.output import answers, compact_table, notes, print_json, print_table
from cli.sizes import size_text
from worker.model.pull import locate
from worker.model.step import PullError

if TYPE_CHECKING:
    import torch

    from worker.kv.format import KVShape
    from worker.plan import Fit, Memory

CONFIG = "config.json"


class Dtype(StrEnum):
    """What a model may compute in."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


def _size_or_zero(text: str | int) -> int:
    return options.size(text, allow_zero=True)


ModelRef = Annotated[
    str,
    typer.Option(
        "--model", metavar="REF", help="A config.json, a model directory, or a pulled model."
    ),
]
GpuMemory = Annotated[
    int, typer.Option(parser=options.size, metavar="SIZE", help="Memory of the GPU, as in 80GiB.")
]
Weights = Annotated[
    int | None,
    typer.Option(
        parser=_size_or_zero,
        metavar="SIZE",
        help="What the weights take; by default all parameters in --dtype.",
    ),
]
Reserve = Annotated[
    int | None,
    typer.Option(
        parser=_size_or_zero,
        metavar="SIZE",
        help="For activations, kernels and the rest; by default a tenth of the memory.",
    ),
]
Contexts = Annotated[
    list[int] | None,
    typer.Option(
        "--context",
        min=1,
        metavar="TOKENS",
        help="Prompt and output of a request; may be repeated. By default the longest that the "
        "model takes, and a quarter of it.",
    ),
]
Formats = Annotated[
    list[str] | None,
    typer.Option(
        "--kv-format", metavar="FORMAT", help="Plan this KV format alone; may be repeated."
    ),
]
DtypeOption = Annotated[
    Dtype | None,
    typer.Option(help="What the model computes in; by default what its config.json says."),
]
BlockSize = Annotated[int, typer.Option(min=1, metavar="TOKENS", help="Tokens of a KV block.")]
Plot = Annotated[
    Path | None, typer.Option(metavar="FILE.svg", help="Draw the plan into this file, too.")
]


class _Model(NamedTuple):
    """What a plan needs to know of a model."""

    name: str
    shape: "KVShape"
    dtype: "torch.dtype"
    max_context: int
    parameters: int


def plan(
    *,
    model: ModelRef,
    gpu_memory: GpuMemory,
    weights: Weights = None,
    reserve: Reserve = None,
    context: Contexts = None,
    kv_format: Formats = None,
    kv_format_layers: options.KvFormatLayers = "",
    dtype: DtypeOption = None,
    block_size: BlockSize = 16,
    plot: Plot = None,
    as_json: options.Json = False,
) -> None:
    """Say how many tokens and requests fit into a GPU's memory, in each KV format."""
    if plot and plot.suffix != ".svg":
        raise CommandError(f"--plot {plot}: plots are SVG; name it {plot.stem}.svg", ExitCode.USAGE)
    with needs("worker"), notes.status("reads the model's config"):
        from worker.kv.format import NAMES, by_name
        from worker.plan import Memory
        from worker.plan import plan as fits

        found = _read(model, dtype, block_size)
    contexts = context or [max(1, found.max_context // 4), found.max_context]
    try:
        memory = Memory(
            total=gpu_memory,
            weights=found.parameters * found.dtype.itemsize if weights is None else weights,
            reserve=gpu_memory // 10 if reserve is None else reserve,
        )
        formats = [by_name(name, kv_format_layers) for name in kv_format or NAMES]
        fitting = fits(memory, found.shape, found.dtype, formats, contexts)
    except ValueError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    if too_long := [length for length in contexts if length > found.max_context]:
        notes.print(
            f"note: {found.name} takes contexts of up to {found.max_context} tokens, "
            f"less than {', '.join(map(str, too_long))}",
            markup=False,
        )
    if as_json:
        print_json(_document(found, memory, contexts, fitting))
    else:
        answers.print(_heading(found, memory))
        print_table(_table(contexts, fitting))
    if plot:
        _write(plot, _chart(found, memory, contexts, fitting))


def _read(ref: str, dtype: Dtype | None, block_size: int) -> _Model:
    """What the config that `ref` leads to says.

    Raises:
        CommandError: there is none, or the model could not be served.
    """
    import torch

    from worker.model.architecture import count_parameters, kv_shape, read_config
    from worker.model.directory import ModelError

    try:
        file = Path(ref) if Path(ref).is_file() else locate(ref) / CONFIG
        if not file.is_file():
            raise CommandError(
                f"--model {ref}: there is no {CONFIG} in {file.parent}", ExitCode.USAGE
            )
        config = read_config(file)
    except (ModelError, PullError) as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    named = dtype and getattr(torch, dtype)
    return _Model(
        name=file.resolve().parent.name if file.name == CONFIG else file.stem,
        shape=kv_shape(config, block_size),
        dtype=named or config.dtype or torch.float32,
        max_context=config.max_position_embeddings,
        parameters=count_parameters(config),
    )


def _document(
    model: _Model, memory: "Memory", contexts: Sequence[int], fitting: Sequence["Fit"]
) -> dict[str, object]:
    formats = [
        asdict(fit) | {"requests": dict(zip(map(str, contexts), fit.requests, strict=True))}
        for fit in fitting
    ]
    return {
        "model": model.name,
        "kv_shape": model.shape._asdict(),
        "dtype": _dtype_name(model),
        "parameters": model.parameters,
        "max_context": model.max_context,
        "memory_bytes": asdict(memory) | {"kv": memory.kv},
        "formats": formats,
    }


def _heading(model: _Model, memory: "Memory") -> str:
    shape = model.shape
    return (
        f"[bold]{escape(model.name)}[/] · KV of {shape.layers} layers x {shape.kv_heads} heads x "
        f"{shape.head_dim} · {_dtype_name(model)}\n{_sum(memory)}\n"
    )


def _sum(memory: "Memory") -> str:
    total, weights, reserve, kv = map(
        size_text, (memory.total, memory.weights, memory.reserve, memory.kv)
    )
    return f"{total} - {weights} weights - {reserve} reserve = {kv} for KV"


def _table(contexts: Sequence[int], fitting: Sequence["Fit"]) -> Table:
    numbers = ("bits", "KV/token", "tokens", *(f"of {length:,}" for length in contexts))
    title = "What fits, and how many requests of each length at once"
    table = compact_table(title, ("format", *numbers), numbers)
    for fit in fitting:
        table.add_row(
            escape(fit.kv_format),
            f"{fit.bits_per_element:.4g}",
            size_text(fit.bytes_per_token),
            f"{fit.tokens:,}",
            *(f"{count:,}" for count in fit.requests),
        )
    return table


def _chart(
    model: _Model, memory: "Memory", contexts: Sequence[int], fitting: Sequence["Fit"]
) -> str:
    panels = [
        Panel(
            f"tokens that fit: {_sum(memory)}",
            [Bar(fit.kv_format, fit.tokens, f"{fit.tokens:,} tokens") for fit in fitting],
        )
    ]
    for index, length in enumerate(contexts):
        counts = [(fit.kv_format, fit.requests[index]) for fit in fitting]
        panels.append(
            Panel(
                f"requests at once, of {length:,} tokens each, sharing nothing",
                [Bar(name, count, f"{count:,}") for name, count in counts],
            )
        )
    return bar_chart(f"What fits of {model.name}", panels)


def _write(file: Path, chart: str) -> None:
    try:
        file.write_text(chart, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--plot {file} cannot be written: {error.strerror}") from error
    notes.print(f"drawn into {file}", style="dim", markup=False)


def _dtype_name(model: _Model) -> str:
    return str(model.dtype).removeprefix("torch.")
