"""`radixgate generate`: continue a prompt, streaming."""

import sys
from typing import Annotated

import typer
from radixgate.client import DEFAULT_ADDRESS, Client
from radixgate.stream import Stream

from cli import options
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
    tenant: options.Tenant = None,
    salt: options.Salt = None,
    timeout: options.Timeout = None,
    gateway: options.Gateway = DEFAULT_ADDRESS,
    as_json: options.Json = False,
) -> None:
    """Continue a prompt, as it stands: no chat template is applied."""
    with (
        Client(gateway) as client,
        client.generate(
            read_prompt(prompt),
            model=model,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            seed=seed,
            stop=stop,
            tenant=tenant,
            salt=salt,
            timeout=timeout,
        ) as stream,
    ):
        if as_json:
            completion = stream.result()
            print_json(
                {
                    "text": completion.text,
                    "ids": list(completion.ids),
                    "started": completion.started,
                    "finished": completion.finished,
                }
            )
        else:
            echo(stream, said=[])
            notes.print(summary(stream), style="dim")


def read_prompt(argument: str) -> str:
    """The prompt itself, or all of stdin for `-`."""
    if argument != "-":
        return argument
    if sys.stdin.isatty():
        raise CommandError("a prompt of - reads stdin, which is a terminal", ExitCode.USAGE)
    return sys.stdin.read()


def echo(stream: Stream, said: list[str]) -> None:
    """Print the text as it comes, noted in `said`, and a newline, also when it breaks off."""
    try:
        for piece in stream:
            said.append(piece.text)
            typer.echo(piece.text, nl=False)
    finally:
        typer.echo()
