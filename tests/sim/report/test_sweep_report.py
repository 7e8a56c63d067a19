"""A sweep answers which pool is the cheapest that is fast enough."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sim.report.sweep import by_trace, cheapest, lines, sweep_sheet
from sim.summary import Slo, Summary, summarize
from tests.sim.runs import synthetic_run

SLO = Slo(share=0.9)
BASE = summarize(synthetic_run(count=5), SLO)


def found(workers: int, kv_format: str = "none", share: float = 0.5, p90: float = 1.0) -> Summary:
    return replace(
        BASE,
        settings={"hardware": "h100", "workers": str(workers), "kv_format": kv_format},
        gpus=2 * workers,
        good_share=share,
        ttft=replace(BASE.ttft, p90=p90),
    )


summaries = st.builds(
    found,
    st.integers(2, 5),
    st.sampled_from(["none", "int8"]),
    st.sampled_from([0.0, 0.89, 0.9, 1.0, math.nan]),
    st.sampled_from([0.1, 0.5, math.inf]),
)


@given(st.lists(summaries, max_size=8))
def test_the_cheapest_meets_the_slo_and_nothing_that_does_is_cheaper(found: list[Summary]) -> None:
    best = cheapest(found, SLO)
    enough = [each for each in found if each.good_share >= 0.9]
    assert (best is None) == (not enough)
    if best is not None:
        assert best in enough
        assert best.gpus == min(each.gpus for each in enough)
        alike = [each.ttft.p90 for each in enough if each.gpus == best.gpus]
        assert best.ttft.p90 == min(alike)


@given(st.lists(summaries, min_size=1, max_size=8))
def test_a_sheet_marks_one_run_at_most(found: list[Summary]) -> None:
    sheet = sweep_sheet(found, SLO)
    marked = [cell.text for row in sheet.rows for cell in row if cell.best]
    assert marked == ["cheapest"] * any(each.good_share >= 0.9 for each in found)
    verdicts = [row[-1].text != "no" for row in sheet.rows]
    assert verdicts == [each.good_share >= 0.9 for each in found]


def test_a_row_names_what_was_swept() -> None:
    two = [found(2, "none"), found(4, "int8", share=1.0)]
    sheet = sweep_sheet(two, SLO, price=2.5)
    headers = [header.text for header in sheet.headers]
    assert headers[:4] == ["workers", "kv_format", "GPUs", "cost\nan hour"]
    assert [[cell.text for cell in row[:4]] for row in sheet.rows] == [
        ["2", "none", "4", "10.00"],
        ["4", "int8", "8", "20.00"],
    ]
    assert "cost\nan hour" not in [header.text for header in sweep_sheet(two, SLO).headers]


def test_policies_are_told_apart_where_there_are_several() -> None:
    two = [found(2), replace(found(2), policy="random")]
    assert [row[0].text for row in sweep_sheet(two, SLO).rows] == ["cost", "random"]
    assert [row[0].text for row in sweep_sheet([found(2)], SLO).rows] == ["cost"]
    assert list(lines(two)) == ["cost", "random"]


def test_a_line_is_of_equal_settings_and_grows() -> None:
    points = [found(4, "none"), found(2, "int8"), found(2, "none")]
    assert {label: [each.gpus for each in line] for label, line in lines(points).items()} == {
        "int8": [4],
        "none": [4, 8],
    }
    assert list(lines([found(4), found(2)])) == ["cost"]


def test_traces_are_apart() -> None:
    other = replace(found(2), trace="agents")
    assert by_trace([found(2), other, found(3)]) == {
        "chats": [found(2), found(3)],
        "agents": [other],
    }
