"""What the real command line makes of arguments, without running anything."""

from collections.abc import Sequence

import typer.main
from typer.core import TyperGroup

from cli.app import app

GROUP = typer.main.get_command(app)


def parsed(arguments: Sequence[str]) -> dict[str, object]:
    """By parameter. Args: of `radixgate`, or of what comes after it."""
    command, rest = GROUP, list(arguments)
    while isinstance(command, TyperGroup):
        command = command.commands[rest.pop(0)]
    return command.make_context(arguments[0], rest).params


def options(name: str) -> set[str]:
    """The options that a command has, as `--name`."""
    assert isinstance(GROUP, TyperGroup)
    parameters = GROUP.commands[name].params
    return {option for parameter in parameters for option in parameter.opts}
