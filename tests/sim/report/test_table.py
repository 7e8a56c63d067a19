"""Tables compare what compares, and mark the best of each column."""

import io
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cli import output
from cli.sheets import print_sheet
from sim.report.columns import CACHE, LATENCY, SERVICE, Column
from sim.report.sweep import sweep_sheet
from sim.report.table import Sheet, cells, groups, sheets
from sim.summary import Slo, Summary, summarize
from tests.sim.runs import synthetic_run

SLO = Slo(ttft_seconds=0.6)


def summary(policy: str = "cost", **values: object) -> Summary:
    return summarize(synthetic_run(policy, **values), SLO)


def of_values(values: list[float], better: object) -> list[bool]:
    places = iter(values)
    column = Column("x\ny", "", lambda _: next(places), decimals=1, better=better)
    return [cell.best for cell in cells(column, [summary(count=0)] * len(values))]


@given(st.lists(st.sampled_from([0.0, 0.1, 0.14, 0.5, float("inf"), float("nan")])))
def test_best_is_what_no_other_beats(values: list[float]) -> None:
    shown = [f"{value:.1f}" for value in values]
    numbers = [float(text) for text in shown if text != "nan"]
    different = len(set(shown)) > 1
    for better in (min, max):
        expected = [different and float(text) == better(numbers, default=0) for text in shown]
        assert of_values(values, better) == expected


def test_columns_where_more_and_less_are_right_have_no_best() -> None:
    assert of_values([1.0, 2.0], None) == [False, False]


def test_a_sheet_has_a_row_for_each_policy_and_one_for_the_ideal() -> None:
    two = [summary("cost"), summary("round_robin", seed=1, refused=0.2)]
    latency, cache, service = sheets(two, SLO)
    assert latency.title == "chats: latency"
    assert service.title == "chats: service (TTFT ≤ 0.6 s, mean ITL ≤ 50 ms)"
    assert [row[0].text for row in latency.rows] == ["cost", "round_robin"]
    assert [row[0].text for row in cache.rows] == ["cost", "round_robin", "ideal"]
    for sheet, columns in ((latency, LATENCY), (cache, CACHE), (service, SERVICE)):
        assert [header.text for header in sheet.headers[1:]] == [each.header for each in columns]
        assert {len(row) for row in sheet.rows} == {len(sheet.headers)}
    by_header = {header.text: place for place, header in enumerate(latency.headers)}
    p99 = [row[by_header["TTFT s\np99"]].text for row in latency.rows]
    assert p99 == [f"{two[0].ttft.p99:.3f}", "∞"]
    assert cache.rows[2][1].text == f"{100 * two[0].ideal_hit_rate:.1f}"


def test_why_requests_were_refused_is_noted() -> None:
    several = [
        replace(summary("cost"), refusals={"too long [8 tokens]": 1200, "full": 1}),
        summary("random"),
        replace(summary("session"), refusals={"full": 2}),
    ]
    latency, cache, service = sheets(several, SLO)
    assert not latency.notes
    assert not cache.notes
    assert service.notes == [
        "refused, too long [8 tokens]: cost 1,200", "refused, full: cost 1, session 2"
    ]  # fmt: skip
    more = [*several, replace(several[0], settings={"workers": "9"})]
    assert sweep_sheet(more, SLO).notes[0] == "refused, too long [8 tokens]: cost 2,400"


def test_other_traces_and_settings_are_in_other_tables() -> None:
    shared = {"hardware": "h100"}
    made = [
        summary("cost", settings={**shared, "workers": "2"}),
        summary("random", settings={**shared, "workers": "2"}),
        summary("cost", settings={**shared, "workers": "4"}),
        summary("cost", trace="agents", settings={**shared, "workers": "2"}),
    ]
    assert [(group.title, list(group.members)) for group in groups(made)] == [
        ("chats workers=2", [0, 1]),
        ("chats workers=4", [2]),
        ("agents workers=2", [3]),
    ]
    assert sheets([], SLO) == []


@pytest.mark.parametrize("width", [60, 100, 10_000])
def test_the_terminal_shows_every_cell(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(output, "answers", Console(file=file, width=width, emoji=False))
    both = sheets([summary("[red]", refused=0.5), summary("round_robin", seed=1)], SLO)
    assert both[-1].notes
    for sheet in both:
        print_sheet(sheet)
    printed = "".join(file.getvalue().replace("─", "").split())
    expected = "".join(_shown(sheet) for sheet in both)
    assert Counter(printed) == Counter("".join(expected.split()))
    assert max(map(len, file.getvalue().splitlines())) <= width


def _shown(sheet: Sheet) -> str:
    headers = "".join(header.text for header in sheet.headers)
    texts = [f"*{cell.text}" if cell.best else cell.text for row in sheet.rows for cell in row]
    return f"{sheet.title}{headers}{''.join(texts)}{''.join(sheet.notes)}"
