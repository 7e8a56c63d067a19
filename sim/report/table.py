"""Tables of summaries as values: what each column means, and which of its cells is the best.

A terminal and a page show the same `Sheet`. Summaries of different traces or settings are never in
one table, since they do not compare.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sim.report.columns import CACHE, HIT_RATE, LATENCY, SERVICE, Column
from sim.summary import Slo, Summary


class Cell(NamedTuple):
    """Args: its `text`; the `value` behind it, None for a name; whether it is the `best` of its
    column.
    """

    text: str
    value: float | None = None
    best: bool = False


class Header(NamedTuple):
    """Args: `text` and `meaning` as in a `Column`; whether its cells are `numbers`."""

    text: str
    meaning: str = ""
    numbers: bool = True


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table: its `title`, its `headers`, `rows` with a cell for each of them, and `notes`, the
    sentences below it.
    """

    title: str
    headers: Sequence[Header]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Summaries that compare: one trace, one setting, different policies.

    Attributes: `title`, the trace and in what the group differs from other groups; `members`, the
    places of its summaries among all, in their order.
    """

    title: str
    members: Sequence[int]


_IDEAL = "ideal"


def sheets(summaries: Sequence[Summary], slo: Slo) -> list[Sheet]:
    """Three for each group: how long requests took, what the caches did, and what that served."""
    made = []
    for group in groups(summaries):
        members = [summaries[place] for place in group.members]
        cache = _compared(f"{group.title}: cache", CACHE, members)
        made += [
            _compared(f"{group.title}: latency", LATENCY, members),
            replace(cache, rows=[*cache.rows, _ideal(members)]),
            replace(
                _compared(f"{group.title}: service ({slo_label(slo)})", SERVICE, members),
                notes=refusals(members),
            ),
        ]
    return made


def refusals(summaries: Sequence[Summary]) -> list[str]:
    """Why requests were refused: a note for each reason, with how many were by each policy."""
    reasons: dict[str, Counter[str]] = {}
    for summary in summaries:
        for why, count in summary.refusals.items():
            reasons.setdefault(why, Counter())[summary.policy] += count
    return [
        f"refused, {why}: {', '.join(f'{policy} {count:,}' for policy, count in counts.items())}"
        for why, counts in reasons.items()
    ]


def groups(summaries: Sequence[Summary]) -> list[Group]:
    """Which summaries compare, by their first member."""
    common = common_settings(summaries)
    members: dict[str, list[int]] = {}
    for place, summary in enumerate(summaries):
        own = [f"{key}={value}" for key, value in summary.settings.items() if key not in common]
        members.setdefault(" ".join([summary.trace, *own]), []).append(place)
    return [Group(title, places) for title, places in members.items()]


def common_settings(summaries: Sequence[Summary]) -> dict[str, str]:
    """The settings that all summaries share."""
    if not summaries:
        return {}
    first, *rest = (summary.settings for summary in summaries)
    return {
        key: value for key, value in first.items() if all(other.get(key) == value for other in rest)
    }


def slo_label(slo: Slo) -> str:
    """Such as `TTFT ≤ 2 s, mean ITL ≤ 50 ms`."""
    return f"TTFT ≤ {slo.ttft_seconds:g} s, mean ITL ≤ {1000 * slo.itl_seconds:g} ms"


def cells(column: Column, summaries: Sequence[Summary]) -> list[Cell]:
    """One for each summary. All that read like the best are marked, unless all cells do."""
    values = [float(column.value(summary)) for summary in summaries]
    texts = [_number(value, column.decimals) for value in values]
    marked: set[str] = set()
    comparable = [value for value in values if not math.isnan(value)]
    if column.better and len(set(texts)) > 1 and comparable:
        marked.add(_number(column.better(comparable), column.decimals))
    return [Cell(text, value, text in marked) for text, value in zip(texts, values, strict=True)]


def header(column: Column) -> Header:
    """Of a column with numbers."""
    return Header(column.header, column.meaning)


def _compared(title: str, columns: Sequence[Column], summaries: Sequence[Summary]) -> Sheet:
    """A row for each policy, and in front of its cells its name."""
    names = [Cell(summary.policy) for summary in summaries]
    columns_of_cells = [names, *(cells(column, summaries) for column in columns)]
    headers = [Header("policy", numbers=False), *map(header, columns)]
    return Sheet(title, headers, list(zip(*columns_of_cells, strict=True)))


def _ideal(summaries: Sequence[Summary]) -> list[Cell]:
    """The row of the ceiling, which is that of the trace and hence the same for all."""
    rate = 100 * summaries[0].ideal_hit_rate
    return [
        Cell(_IDEAL),
        Cell(_number(rate, HIT_RATE.decimals), rate),
        *(Cell("", math.nan) for _ in CACHE[1:]),
    ]


def _number(value: float, decimals: int) -> str:
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "∞"
    return f"{value:,.{decimals}f}"
