"""How commands speak: answers to stdout, everything else to stderr, JSON when asked for."""

import json
import sys
from collections.abc import Container, Iterable, Sequence
from typing import Any

import typer
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from radixgate.stream import AsyncStream
from radixgate.v1.gateway_pb2 import Candidate, Trust, WorkerInfo
from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

# NOTE: rich takes what is no terminal for 80 columns wide, and would cut tables there.
_ENDLESS = 10_000

answers = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else _ENDLESS)
notes = Console(stderr=True, highlight=False, emoji=False)

_TRUST_STYLES = {
    Trust.TRUST_LIVE: "green",
    Trust.TRUST_SUSPECT: "yellow",
    Trust.TRUST_LOST: "red",
}


def print_json(value: Message | Sequence[Message] | dict[str, Any]) -> None:
    """One JSON document, with the field names of the contract."""
    typer.echo(json.dumps(_plain(value), ensure_ascii=False, indent=2))


def _plain(value: Message | Sequence[Message] | dict[str, Any]) -> Any:
    match value:
        case Message():
            return MessageToDict(
                value, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
        case dict():
            return {
                key: _plain(item) if isinstance(item, Message) else item
                for key, item in value.items()
            }
        case _:
            return [_plain(item) for item in value]


def compact_table(title: str, columns: Iterable[str], numbers: Container[str]) -> Table:
    """An empty table that loses nothing where it is narrow: its cells fold.

    Args:
        title: rich markup.
        columns: their headers.
        numbers: the columns that are set to the right.
    """
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        title=title,
        title_justify="left",
        title_style="bold",
    )
    for header in columns:
        justify: JustifyMethod = "right" if header in numbers else "left"
        table.add_column(header, justify=justify, overflow="fold")
    return table


def print_table(table: Table) -> None:
    """Print a table and a blank line; where the terminal is too narrow, its gaps shrink first."""
    room = answers.options.update_width(_ENDLESS)
    if Measurement.get(answers, room, table).maximum > answers.width:
        table.padding = (0, 0)
    answers.print(table, "")


def trust_label(worker: WorkerInfo | Candidate) -> str:
    """`live`, or in what way it is not, as rich markup."""
    if worker.circuit:
        return f"[red]left alone: {escape(worker.circuit)}[/]"
    trust, reason = worker.trust, worker.trust_reason
    name = Trust.Name(trust).removeprefix("TRUST_").lower()
    label = name if trust == Trust.TRUST_LIVE or not reason else f"{name}: {reason}"
    style = _TRUST_STYLES.get(trust, "dim")
    return f"[{style}]{escape(label)}[/]"


def summary(stream: AsyncStream) -> str:
    """One line about a stream that has finished: what it cost and what the cache saved."""
    started, finished = stream.started, stream.finished
    assert started is not None
    assert finished is not None
    streaming = finished.total_seconds - finished.ttft_seconds
    rate = ""
    if finished.output_tokens > 1 and streaming > 0:
        rate = f", {(finished.output_tokens - 1) / streaming:.0f}/s"
    return " · ".join(
        (
            f"{finished.output_tokens} token{'s' * (finished.output_tokens != 1)}{rate}",
            f"{finished.cached_tokens} of {finished.prompt_tokens} prompt tokens cached",
            f"first token {finished.ttft_seconds * 1000:.0f} ms",
            started.worker,
        )
    )
