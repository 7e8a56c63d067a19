"""How commands speak: answers to stdout, everything else to stderr, JSON when asked for."""

import json
from collections.abc import Sequence
from typing import Any

import typer
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from radixgate.stream import AsyncStream
from radixgate.v1.gateway_pb2 import Trust
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

answers = Console(highlight=False, emoji=False)
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


def compact_table(title: str) -> Table:
    """An empty table for terminals from 80 columns; `title` is rich markup."""
    return Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        title=title,
        title_justify="left",
        title_style="bold",
    )


def trust_label(trust: Trust.ValueType, reason: str) -> str:
    """`live`, or in what way it is not, as rich markup."""
    name = Trust.Name(trust).removeprefix("TRUST_").lower()
    label = name if trust == Trust.TRUST_LIVE or not reason else f"{name}: {reason}"
    style = _TRUST_STYLES.get(trust, "dim")
    return f"[{style}]{label}[/]"


def summary(stream: AsyncStream) -> str:
    """One line about a stream that has finished: what it cost and what the cache saved."""
    started, finished = stream.started, stream.finished
    assert started is not None
    assert finished is not None
    streaming = finished.total_seconds - finished.ttft_seconds
    parts = [
        f"{finished.output_tokens} token{'s' * (finished.output_tokens != 1)}",
        f"{finished.cached_tokens} of {finished.prompt_tokens} prompt tokens cached",
        started.worker,
        f"first token {finished.ttft_seconds * 1000:.0f} ms",
    ]
    if finished.output_tokens > 1 and streaming > 0:
        parts.append(f"{(finished.output_tokens - 1) / streaming:.0f} tokens/s")
    return " · ".join(parts)
