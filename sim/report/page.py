"""One self-contained HTML page: it loads nothing, and its policy lets it load nothing."""

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import NamedTuple

from sim.report.table import Cell, Header, Sheet

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


class Section(NamedTuple):
    """Args: its `title`; what it `holds`, as HTML."""

    title: str
    holds: Sequence[str]


def page(title: str, command: str, facts: Mapping[str, str], sections: Sequence[Section]) -> str:
    """The document.

    Args:
        title: what was compared.
        command: that made it; "" when it was no command.
        facts: what was the same for all, name to value.
        sections: below each other.
    """
    listed = "".join(f"<dt>{escape(name)}<dd>{escape(value)}" for name, value in facts.items())
    shown = "".join(
        f"<section><h2>{escape(section.title)}</h2>{''.join(section.holds)}</section>"
        for section in sections
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{_resource("page.css")}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{f"<pre><code>{escape(command)}</code></pre>" if command else ""}
<dl>{listed}</dl>
{shown}
</main>
<script>{_resource("page.js")}</script>
</body>
</html>
"""


def table(sheet: Sheet) -> str:
    """A sheet, which sorts itself where a header is pressed, and its notes."""
    headers = "".join(map(_header, sheet.headers))
    rows = "".join(f"<tr>{''.join(map(_cell, row, sheet.headers))}</tr>" for row in sheet.rows)
    notes = "".join(f"<p>{escape(note)}</p>" for note in sheet.notes)
    return (
        f'<div class="scroll"><table><caption>{escape(sheet.title)}</caption>'
        f"<thead><tr>{headers}</tr></thead><tbody>{rows}</tbody></table>{notes}</div>"
    )


def figure(caption: str, svg: str) -> str:
    """A plot under its caption."""
    return f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"


def _header(header: Header) -> str:
    number = ' class="number"' if header.numbers else ""
    meaning = f' title="{escape(header.meaning)}"' if header.meaning else ""
    return f'<th scope="col"{number}><button{meaning}>{escape(header.text)}</button></th>'


def _cell(cell: Cell, header: Header) -> str:
    classes = ["number"] * header.numbers + ["best"] * cell.best
    attributes = f' class="{" ".join(classes)}"' if classes else ""
    if cell.value is not None:
        attributes += f' data-value="{_javascript(cell.value)}"'
    return f"<td{attributes}>{escape(cell.text)}</td>"


def _javascript(value: float) -> str:
    """As `Number()` reads it."""
    return {"inf": "Infinity", "nan": "NaN"}.get(str(value), str(value))


def _resource(name: str) -> str:
    return files("sim.report").joinpath(name).read_text("utf-8")
