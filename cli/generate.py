"""`radixgate generate`: continue a prompt, streaming."""

import sys
from typing import Annotated

import typer
from radixgate.client import DEFAULT_ADDRESS, AsyncClient
from radixgate.request import Options
from radixgate.stream import AsyncStream

from cli import options
from cli.calls import call
from cli.exits import CommandError, ExitCode
from cli.output import notes, print_json, summary

Prompt = Annotated[str, typer.Argument(help="The text to continue; - reads it from stdin.")]


def generate(
    prompt: Prompt,
    *,
    model: options.Model = None,
    max_tokens: options.MaxTokens = 128,
    temperature: options.Temperature = 0.0,
    top_p: options.TopP = None,
    top_k: options.TopK = None,
    seed: options.Seed = None,
    stop: options.Stop = None,
    priority: options.Priority = 0,
    tenant: options.Tenant = None,
    salt: options.Salt = None,
    timeout: options.Timeout = None,
    gateway: options.Gateway = DEFAULT_ADDRESS,
    as_json: options.Json = False,
) -> None:
    """Continue a prompt, as it stands: no chat template is applied."""
    text = read_prompt(prompt)
    request = Options(
        model=model,
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        stop=stop,
        priority=priority,
        tenant=tenant,
        salt=salt,
    )

    async def show(client: AsyncClient) -> None:
        async with client.generate(text, timeout=timeout, **request) as stream:
            await (_show_json if as_json else _show)(stream)

    call(gateway, show)


async def _show(stream: AsyncStream) -> None:
    await echo(stream, said=[])
    notes.print(summary(stream), style="dim")


async def _show_json(stream: AsyncStream) -> None:
    completion = await stream.result()
    print_json(
        {
            "text": completion.text,
            "ids": list(completion.ids),
            "started": completion.started,
            "finished": completion.finished,
        }
    )


def read_prompt(argument: str) -> str:
    """The prompt itself, or all of stdin for `-`."""
    if argument != "-":
        return argument
    if sys.stdin.isatty():
        raise CommandError("a prompt of - reads stdin, which is a terminal", ExitCode.USAGE)
    return sys.stdin.read()


async def echo(stream: AsyncStream, said: list[str]) -> None:
    """Print the text as it comes, noted in `said`, and a newline, also when it breaks off."""
    try:
        async for piece in stream:
            said.append(piece.text)
            typer.echo(piece.text, nl=False)
    finally:
        if said:
            typer.echo()
