"""`radixgate pin` and `unpin`: keep the KV of a prompt for some time, or give it up before."""

from typing import Annotated

import typer
from radixgate.client import DEFAULT_ADDRESS
from radixgate.limits import MAX_PIN_SECONDS
from rich.markup import escape

from cli import options
from cli.calls import call
from cli.generate import read_prompt
from cli.output import compact_table, print_json, print_table

Prompt = Annotated[
    str, typer.Argument(help="The text, as `generate` takes it; - reads it from stdin.")
]
Ttl = Annotated[
    float,
    typer.Option(
        min=0.001, max=MAX_PIN_SECONDS, metavar="SECONDS", help="Keep it for so long, up to 7 days."
    ),
]

_NUMBERS = ("prompt tokens", "kept", "seconds")


def pin(
    prompt: Prompt,
    *,
    ttl: Ttl = 3600.0,
    model: options.Model = None,
    tenant: options.Tenant = None,
    salt: options.Salt = None,
    timeout: options.Timeout = None,
    gateway: options.Gateway = DEFAULT_ADDRESS,
    as_json: options.Json = False,
) -> None:
    """Keep a prompt's KV at a worker, in whole blocks; computes first what is not cached."""
    text = read_prompt(prompt)
    pinned = call(
        gateway,
        lambda client: client.pin(
            text, ttl=ttl, model=model, tenant=tenant, salt=salt, timeout=timeout
        ),
    )
    if as_json:
        print_json(pinned)
        return
    table = compact_table("", ("worker", *_NUMBERS), numbers=_NUMBERS)
    table.add_row(
        escape(pinned.worker), str(pinned.prompt_tokens), str(pinned.pinned_tokens), f"{ttl:g}"
    )
    print_table(table)


def unpin(
    prompt: Prompt,
    *,
    model: options.Model = None,
    tenant: options.Tenant = None,
    salt: options.Salt = None,
    timeout: options.Timeout = 10.0,
    gateway: options.Gateway = DEFAULT_ADDRESS,
    as_json: options.Json = False,
) -> None:
    """Give up the pin of a prompt, wherever it is; ends with exit code 2 when there is none."""
    text = read_prompt(prompt)
    workers = call(
        gateway,
        lambda client: client.unpin(text, model=model, tenant=tenant, salt=salt, timeout=timeout),
    )
    if as_json:
        print_json({"workers": workers})
        return
    for worker in workers:
        typer.echo(f"{worker} keeps it no longer")
