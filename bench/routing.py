"""The tables of docs/routing.md, from what `radixgate simulate --json` has printed.

    .venv/bin/radixgate simulate … --policy all --load 0.7,0.9 --json > routing.json
    .venv/bin/python -m bench.routing [--short] routing.json

For each trace and load a table in Markdown: hit rate and fates of prompt tokens, TTFT, ITL, goodput
and imbalance of each policy, the one with the lowest p90 TTFT first. The best of a column is bold.
What else `--sweep` has varied stands beside the policy. With `--short` it is one table, with a
column for each trace and load: p90 TTFT and hit rate.
"""

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Found = dict[str, Any]


class Column(NamedTuple):
    """Args: its `name`; its `value` in a run; its `digits`; whether `more` is better, if either."""

    name: str
    value: Callable[[Found], float | None]
    digits: int
    more: bool | None


COLUMNS = (
    Column("TTFT p90, s", lambda run: run["ttft"]["p90"], 3, more=False),
    Column("p50", lambda run: run["ttft"]["p50"], 3, more=False),
    Column("mean", lambda run: run["ttft"]["mean"], 3, more=False),
    Column("p99", lambda run: run["ttft"]["p99"], 2, more=False),
    Column("hit, %", lambda run: 100 * run["hit_rate"], 1, more=True),
    Column("elsewhere", lambda run: 100 * run["elsewhere"], 1, more=None),
    Column("evicted", lambda run: 100 * run["evicted"], 1, more=None),
    Column("ITL mean, ms", lambda run: 1000 * run["itl"]["mean"], 1, more=False),
    Column("good, %", lambda run: 100 * run["good_share"], 1, more=True),
    Column("max/mean busy", lambda run: run["busy_imbalance"], 2, more=False),
)


SHORT = [column for column in COLUMNS if column.name in ("TTFT p90, s", "hit, %")]


def table(runs: Sequence[Found]) -> str:
    """Of runs over one trace at one load."""
    order = sorted(runs, key=lambda run: run["ttft"]["p90"] or math.inf)
    bests = [best(column, order) for column in COLUMNS]
    varied = varied_in(runs)
    return markdown(
        [
            ["policy", *(column.name for column in COLUMNS)],
            *(
                [
                    label(run, varied),
                    *(cell(column, run, top) for column, top in zip(COLUMNS, bests, strict=True)),
                ]
                for run in order
            ),
        ]
    )


def short_table(groups: Mapping[tuple[str, str], Sequence[Found]]) -> str:
    """Of all runs, by trace and load."""
    rows: dict[str, list[str]] = {}
    for runs in groups.values():
        bests = [best(column, runs) for column in SHORT]
        varied = varied_in(runs)
        for run in runs:
            cells = [cell(column, run, top) for column, top in zip(SHORT, bests, strict=True)]
            rows.setdefault(label(run, varied), []).append(", ".join(cells))
    heads = [f"{trace.split('.')[0].split(':')[0]}, {load}" for trace, load in groups]
    return markdown([["policy", *heads], *([name, *row] for name, row in rows.items())])


def varied_in(runs: Sequence[Found]) -> list[str]:
    """The settings that are not the same in all of them."""
    return [
        name
        for name in runs[0]["settings"]
        if len({str(run["settings"].get(name)) for run in runs}) > 1
    ]


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table; its first row is the head."""
    head, *body = rows
    lines = [head, ["---", *("---:" for _ in head[1:])], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def label(run: Found, varied: Sequence[str]) -> str:
    """Its policy, and what it has of the settings that are `varied`."""
    return ", ".join(
        [f"`{run['policy']}`", *(f"{name} {run['settings'][name]}" for name in varied)]
    )


def best(column: Column, runs: Sequence[Found]) -> str:
    """As its cell says it; empty where there is none, or where all are alike."""
    values = [value for run in runs if (value := column.value(run)) is not None]
    cells = {f"{value:.{column.digits}f}" for value in values}
    if column.more is None or len(cells) < 2:
        return ""
    return f"{(max if column.more else min)(values):.{column.digits}f}"


def cell(column: Column, run: Found, top: str) -> str:
    value = column.value(run)
    text = "endless" if value is None else f"{value:.{column.digits}f}"
    return f"**{text}**" if text == top else text


def main() -> None:
    parser = argparse.ArgumentParser(description="Tables of docs/routing.md.")
    parser.add_argument("json", type=Path, help="what radixgate simulate --json has printed")
    parser.add_argument("--short", action="store_true", help="one table")
    options = parser.parse_args()
    document = json.loads(options.json.read_text())
    groups: defaultdict[tuple[str, str], list[Found]] = defaultdict(list)
    for run in document["runs"]:
        groups[run["trace"], run["settings"].get("load", "")].append(run)
    if options.short:
        print(short_table(groups))
        return
    for (trace, load), runs in groups.items():
        print(f"**{trace}**, {heading(load, runs)}\n\n{table(runs)}\n")


def heading(load: str, runs: Sequence[Found]) -> str:
    """Of the table of these runs."""
    ideal = f"ideal hit rate {100 * runs[0]['ideal_hit_rate']:.1f} %"
    asked = runs[0]["settings"].get("requests_per_second")
    if asked is None:
        return f"as recorded, {ideal}"
    came = [run["busiest_rate"] for run in runs]
    return (
        f"load {load} ({asked} requests a second while it is busiest; {min(came):.3g} to "
        f"{max(came):.3g} came), {ideal}"
    )


if __name__ == "__main__":
    main()
