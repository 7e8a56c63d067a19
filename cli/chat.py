"""`radixgate chat`: a conversation at the terminal, or line by line from a pipe."""

import asyncio
import sys
from typing import Annotated

import typer
from radixgate.client import DEFAULT_ADDRESS, AsyncClient
from radixgate.errors import RadixgateError
from radixgate.request import Options
from rich.markup import escape

from cli import options
from cli.calls import run
from cli.generate import echo
from cli.output import notes, summary

System = Annotated[str | None, typer.Option(help="A system message that opens the conversation.")]

HELP = "/new starts over · /exit or Ctrl-D leaves · Ctrl-C stops an answer"
# NOTE: readline counts what stands between \001 and \002 as zero cells wide.
PROMPT = "\001\033[1;36m\002> \001\033[0m\002"


class Conversation:
    """The messages so far. A turn that fails or is stopped before a word leaves no trace."""

    def __init__(self, client: AsyncClient, system: str | None, request: Options) -> None:
        self._client = client
        self._request = request
        self._opening = [{"role": "system", "content": system}] if system else []
        self.messages = list(self._opening)

    def restart(self) -> None:
        """Forget everything but the system message."""
        self.messages = list(self._opening)

    async def ask(self, text: str) -> str:
        """Print the answer as it comes; when it is cancelled, what had come is kept.

        Returns:
            One line about the request.

        Raises:
            RadixgateError: the request failed.
        """
        question = {"role": "user", "content": text}
        said: list[str] = []
        async with self._client.chat([*self.messages, question], **self._request) as stream:
            try:
                await echo(stream, said)
                outcome = summary(stream)
            except asyncio.CancelledError:
                outcome = "stopped"
        if answer := "".join(said):
            self.messages += [question, {"role": "assistant", "content": answer}]
        return outcome


def chat(
    *,
    system: System = None,
    model: options.Model = None,
    max_tokens: options.MaxTokens = 512,
    temperature: options.Temperature = 0.0,
    top_p: options.TopP = None,
    top_k: options.TopK = None,
    seed: options.Seed = None,
    priority: options.Priority = 0,
    tenant: options.Tenant = None,
    salt: options.Salt = None,
    gateway: options.Gateway = DEFAULT_ADDRESS,
) -> None:
    """Chat with a model; every turn finds the turns before it in the cache."""
    request = Options(
        model=model,
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        priority=priority,
        tenant=tenant,
        salt=salt,
    )
    with asyncio.Runner() as runner:
        client = run(runner, _client(gateway))
        try:
            models = run(runner, client.models(timeout=10))
            if sys.stdin.isatty():
                names = model or ", ".join(found.model for found in models) or "no model yet"
                notes.print(f"[bold]{escape(names)}[/] at {gateway}\n[dim]{HELP}[/]")
            _converse(runner, Conversation(client, system, request))
        finally:
            run(runner, client.close())


async def _client(gateway: str) -> AsyncClient:
    return AsyncClient(gateway)


def _converse(runner: asyncio.Runner, conversation: Conversation) -> None:
    """Read lines and answer them until there are no more; Ctrl-C never ends it."""
    while True:
        try:
            line = _read_line()
            if line is None or line in {"/exit", "/quit"}:
                return
            _handle(runner, conversation, line)
        except KeyboardInterrupt:
            notes.print("\nCtrl-D or /exit leaves", style="dim")


def _read_line() -> str | None:
    """The next line, or None at the end."""
    interactive = sys.stdin.isatty()
    if interactive:
        import readline  # noqa: F401 - gives input() its history and editing
    try:
        return input(PROMPT if interactive else "").strip()
    except EOFError:
        if interactive:
            notes.print()
        return None


def _handle(runner: asyncio.Runner, conversation: Conversation, line: str) -> None:
    """Do what a line says: nothing, a command, or a question."""
    if line == "/new":
        conversation.restart()
        notes.print("a new conversation", style="dim")
    elif line.startswith("/"):
        notes.print(f"no command {line}: {HELP}", style="dim", markup=False)
    elif line:
        try:
            outcome = run(runner, conversation.ask(line))
        except RadixgateError as error:
            notes.print(str(error), style="red", markup=False)
        else:
            notes.print(f"{outcome}\n", style="dim", markup=False)
