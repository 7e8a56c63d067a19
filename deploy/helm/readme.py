"""Writes the table of values in the chart's README.md: `make chart-readme`.

A row is a value in values.yaml with a comment above it that begins with `# --`; more lines of the
comment belong to it. What lies below a value with such a comment has no row of its own.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

CHART = Path(__file__).parent / "radixgate"
BEGIN, END = "<!-- values: begin -->", "<!-- values: end -->"


class Row(NamedTuple):
    """Args: `path`, as for `--set`; `default`, as JSON; `text`, empty if nothing documents it."""

    path: str
    default: str
    text: str


def rows(source: str) -> Iterator[Row]:
    """All values of a values.yaml, each map opened unless it is documented as a whole."""
    lines = source.splitlines()
    root = yaml.compose(source, yaml.SafeLoader)
    if isinstance(root, yaml.MappingNode):
        yield from _rows(root, lines, "")


def _rows(node: yaml.MappingNode, lines: list[str], prefix: str) -> Iterator[Row]:
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        text = _comment_above(lines, key.start_mark.line)
        if isinstance(value, yaml.MappingNode) and value.value and not text:
            yield from _rows(value, lines, f"{path}.")
        else:
            default = yaml.SafeLoader("").construct_document(value)
            yield Row(path, json.dumps(default, ensure_ascii=False), text)


def _comment_above(lines: list[str], line: int) -> str:
    said: list[str] = []
    while line and (above := lines[line - 1].strip()).startswith("#"):
        said.insert(0, above.removeprefix("#").strip())
        line -= 1
    starts = [number for number, words in enumerate(said) if words.startswith("-- ")]
    return " ".join(said[starts[-1] :]).removeprefix("-- ") if starts else ""


def table(source: str) -> str:
    """The rows as Markdown."""
    head = ["| value | default | |", "|---|---|---|"]
    body = [
        f"| `{path}` | `{default}` | {text.replace('|', chr(92) + '|')} |"
        for path, default, text in rows(source)
    ]
    return "\n".join([*head, *body])


def updated(readme: str, source: str) -> str:
    """The README with the table of this values.yaml.

    Raises:
        ValueError: it has no place for the table.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"README.md has no place for the table; write {BEGIN} and {END} into it")
    return f"{before}{BEGIN}\n{table(source)}\n{END}{after}"


def main() -> None:
    """Write the table."""
    readme = CHART / "README.md"
    readme.write_text(updated(readme.read_text(), (CHART / "values.yaml").read_text()))


if __name__ == "__main__":
    main()
