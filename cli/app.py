"""All commands of `radixgate`, and how their failures end."""

from typing import Annotated, Any

import typer
from radixgate import __version__
from radixgate.errors import RadixgateError
from typer.core import TyperGroup

from cli import (
    chat,
    explain,
    gateway_cmd,
    generate,
    model,
    pins,
    plan,
    route,
    simulate,
    up,
    worker_cmd,
    workers,
)
from cli.exits import EPILOG, CommandError, ExitCode, exit_code
from cli.output import notes


class _Commands(TyperGroup):
    """Ends every failure that has a message for people with it, and with an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RadixgateError as error:
            message, code = str(error), exit_code(error)
        except CommandError as error:
            message, code = str(error), error.code
        except KeyboardInterrupt:
            notes.print("interrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        notes.print("[bold red]error:[/]", end=" ")
        notes.print(message, markup=False, soft_wrap=True)
        raise typer.Exit(code)


app = typer.Typer(
    cls=_Commands,
    help="A gateway that sends every LLM request to the worker that holds its prompt in cache.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_TALK, _RUN = "Talk to a gateway", "Run the parts"

app.command(rich_help_panel=_RUN)(up.up)
app.command(rich_help_panel=_RUN)(gateway_cmd.gateway)
app.command(rich_help_panel=_RUN)(worker_cmd.worker)
app.command(rich_help_panel=_RUN)(plan.plan)
app.command(rich_help_panel=_RUN)(simulate.simulate)
app.add_typer(model.app, name="model", rich_help_panel=_RUN)
for talk in (
    chat.chat,
    generate.generate,
    explain.explain,
    route.route,
    route.finish,
    workers.workers,
    pins.pin,
    pins.unpin,
):
    app.command(rich_help_panel=_TALK)(talk)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
) -> None:
    """A gateway that sends every LLM request to the worker that holds its prompt in cache."""
