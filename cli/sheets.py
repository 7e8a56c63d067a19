"""Sheets of the simulator's reports at the terminal."""

from rich.markup import escape

from cli import output
from sim.report.table import Cell, Sheet

_BEST = "*"


def print_sheet(sheet: Sheet) -> None:
    """Print it, and its notes; the best of a column is green and has a star, for places without
    colours.
    """
    headers = [header.text for header in sheet.headers]
    numbers = {header.text for header in sheet.headers if header.numbers}
    table = output.compact_table(escape(sheet.title), headers, numbers)
    for row in sheet.rows:
        table.add_row(*map(_markup, row))
    output.print_table(table)
    if sheet.notes:
        output.answers.print(*sheet.notes, "", sep="\n", markup=False)


def _markup(cell: Cell) -> str:
    text = escape(cell.text)
    return f"[bold green]{_BEST}{text}[/]" if cell.best else text
