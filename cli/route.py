"""`radixgate route` and `finish`: reserve a worker for who calls it, and tell how that ended."""

from typing import Annotated

import grpc
import typer
from radixgate.client import DEFAULT_ADDRESS
from radixgate.v1.gateway_pb2 import (
    FINISH_OUTCOME_COUNTED,
    FINISH_OUTCOME_ENDED_BEFORE,
    FINISH_OUTCOME_PASSED_ON,
)
from rich.markup import escape

from cli import options
from cli.calls import call
from cli.generate import Prompt, read_prompt
from cli.output import answers, compact_table, print_json, print_table


def _status(name: str | grpc.StatusCode) -> grpc.StatusCode:
    try:
        return name if isinstance(name, grpc.StatusCode) else grpc.StatusCode[name.upper()]
    except KeyError:
        names = ", ".join(code.name for code in grpc.StatusCode)
        raise typer.BadParameter(f"{name!r} is no gRPC status; they are {names}") from None


Without = Annotated[
    list[str] | None, typer.Option(metavar="WORKER", help="Not this worker; may be repeated.")
]
Reservation = Annotated[str, typer.Argument(help="As `route` printed it.")]
Status = Annotated[
    grpc.StatusCode,
    typer.Option(
        parser=_status,
        metavar="STATUS",
        show_default="OK",
        help="The gRPC status with which the call of the worker ended.",
    ),
]
CachedTokens = Annotated[
    int | None, typer.Option(min=0, max=2**32 - 1, help="As the worker's Started said.")
]
Message = Annotated[str, typer.Option(help="What the worker said of its failure.")]

_NUMBERS = ("prompt tokens", "expected")
_OUTCOMES = {
    FINISH_OUTCOME_COUNTED: "counted",
    FINISH_OUTCOME_ENDED_BEFORE: "had ended before",
    FINISH_OUTCOME_PASSED_ON: "passed on to the gateway that routed it",
}


def route(
    prompt: Prompt,
    *,
    model: options.Model = None,
    max_tokens: options.MaxTokens = None,
    priority: options.Priority = 0,
    tenant: options.Tenant = None,
    salt: options.Salt = None,
    without: Without = None,
    timeout: options.Timeout = None,
    gateway: options.Gateway = DEFAULT_ADDRESS,
    as_json: options.Json = False,
) -> None:
    """Reserve a worker for a prompt, for whoever calls it; --json prints what to send to it."""
    text = read_prompt(prompt)
    routed = call(
        gateway,
        lambda client: client.route(
            text,
            without=without or (),
            timeout=timeout,
            model=model,
            max_tokens=max_tokens,
            priority=priority,
            tenant=tenant,
            salt=salt,
        ),
    )
    if as_json:
        print_json(routed)
        return
    table = compact_table("", ("worker", "address", *_NUMBERS, "reservation"), numbers=_NUMBERS)
    table.add_row(
        escape(routed.worker),
        escape(routed.address),
        str(routed.prompt_tokens),
        str(routed.matched_tokens),
        escape(routed.reservation),
    )
    print_table(table)
    answers.print(escape(routed.reason), style="bold")


def finish(
    reservation: Reservation,
    *,
    status: Status = grpc.StatusCode.OK,
    cached_tokens: CachedTokens = None,
    message: Message = "",
    timeout: options.Timeout = 10.0,
    gateway: options.Gateway = DEFAULT_ADDRESS,
    as_json: options.Json = False,
) -> None:
    """Tell how a request ended that was routed with `route`; any gateway will do."""
    found = call(
        gateway,
        lambda client: client.finish(
            reservation,
            status=status,
            cached_tokens=cached_tokens,
            message=message,
            timeout=timeout,
        ),
    )
    if as_json:
        print_json(found)
    else:
        typer.echo(f"{reservation}: {_OUTCOMES[found.outcome]}")
