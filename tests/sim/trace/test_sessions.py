"""Sessions of coding agents: differences undone, sub-agents in their place, who waits for whom."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.request import Request
from sim.trace.formats import open_trace
from sim.trace.row import TraceError
from tests.sim.trace.files import alike, blocks, json_lines, numbered

FIELDS = ["t", "depth", "in", "out", "keep_prev_prefix", "new_hash_ids", "api_time", "stop"]
Rows = list[list[Any]]


def session(name: str, *rows: list[Any], **changes: object) -> dict[str, object]:
    """A line of the file; blocks are of 10 tokens."""
    return {"id": name, "block_size": 10, "fields": FIELDS, "requests": [*rows]} | changes


def row(
    t: float, tokens: int, keep: int, new: list[int], *, depth: int = 0, took: float = 0.0
) -> list[Any]:
    """A request of a session."""
    return [t, depth, tokens, 3, keep, new, took, "tool_use"]


def read(path: Path, *sessions: dict[str, object], gap: float = 100.0) -> list[Request]:
    """The requests of a file of `sessions`."""
    return list(open_trace(json_lines(path, sessions), session_gap=gap).requests)


def test_ids_are_those_kept_and_those_new_and_mean_nothing_elsewhere(tmp_path: Path) -> None:
    one = session("a", row(0, 35, 0, [1, 2, 3]), row(5, 40, 2, [7, 8]))
    first, second, third, _ = read(tmp_path / "t", one, one | {"id": "b"})
    assert first.prompt.ids[:2] == second.prompt.ids[:2]
    assert len(set(first.prompt.ids) | set(second.prompt.ids)) == 6
    assert not set(third.prompt.ids) & (set(first.prompt.ids) | set(second.prompt.ids))
    assert (len(first.prompt.ids), first.prompt.tokens) == (4, 35)
    assert (len(second.prompt.ids), second.prompt.tokens) == (4, 40)
    assert [first.session, third.session] == ["a", "b"]


def test_sessions_begin_one_after_the_other(tmp_path: Path) -> None:
    one = session("a", row(0, 10, 0, [1]), row(150, 10, 1, []))
    requests = read(tmp_path / "t", one, one | {"id": "b"})
    assert [(each.at, each.session) for each in requests] == [
        (0.0, "a"),
        (100.0, "b"),
        (150.0, "a"),
        (250.0, "b"),
    ]
    assert [each.after for each in requests] == [None, None, 0, 1]


def test_a_request_waits_for_what_was_answered_last_before_it(tmp_path: Path) -> None:
    requests = read(
        tmp_path / "t",
        session(
            "a",
            row(0, 10, 0, [1], took=4.0),
            row(5, 10, 1, [], took=20.0),
            row(9, 10, 1, [], took=1.0),
            row(12, 10, 1, []),
            row(13, 10, 1, []),
            row(27, 10, 1, []),
        ),
    )
    assert [each.after for each in requests] == [None, 0, 0, 2, 3, 1]
    assert [each.think for each in requests] == [0.0, 1.0, 5.0, 2.0, 1.0, 2.0]


def test_a_sub_agent_begins_when_the_agent_above_it_is_answered(tmp_path: Path) -> None:
    requests = read(
        tmp_path / "t",
        session(
            "a",
            row(200, 10, 0, [1], took=10.0),
            row(0, 10, 0, [2], depth=1, took=5.0),
            row(30, 10, 0, [3], depth=1, took=5.0),
            row(0, 10, 0, [4], depth=2, took=1.0),
            row(50, 10, 0, [5], depth=1, took=5.0),
            row(0, 10, 0, [6], depth=1, took=5.0),
            row(300, 10, 0, [7]),
        ),
    )
    found = {tuple(each.prompt.ids): each for each in requests}
    assert [each.at + 200 for each in requests] == [200.0, 210.0, 210.0, 240.0, 245.0, 260.0, 300.0]
    assert len(found) == 7
    assert [each.after for each in requests] == [None, 0, 0, 1, 3, 4, 5]


def test_a_sub_agent_does_not_wait_for_another_one(tmp_path: Path) -> None:
    requests = read(
        tmp_path / "t",
        session(
            "a",
            row(0, 10, 0, [1], took=10.0),
            row(5, 10, 0, [2], depth=1, took=90.0),
            row(20, 10, 0, [3], took=10.0),
            row(1, 10, 0, [4], depth=1),
        ),
    )
    assert [each.at for each in requests] == [0.0, 15.0, 20.0, 31.0]
    assert [each.after for each in requests] == [None, 0, 0, 2]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (session("b", row(0, 25, 0, [1])), r"request 1: 'in' of 25 tokens is 2 full blocks of 10"),
        (session("b", row(0, 10, 1, [1])), r"request 1: 'keep_prev_prefix' is 1, and .* has 0 ids"),
        (session("b", [0, 1]), r"request 1 must be a list of 8 values"),
        (session("b", fields=["t"]), r"'fields' must name depth, in, out"),
        (session("b", block_size=0), r"'block_size' must be an integer from 1"),
        (session("b", row(-1, 10, 0, [1])), r"request 1: 't' must be a number, 0 or more"),
        (session("b", row(0, 10, 0, [1], depth=-1)), r"request 1: 'depth' must be"),
        (session("b", row(0, 10, 0, [1]), block_size=5), r"'block_size' is 5, and 10 before"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, line: dict[str, object], told: str) -> None:
    with pytest.raises(TraceError, match="t, line 2.*" + told):
        read(tmp_path / "t", session("a", row(0, 10, 0, [1])), line)


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.integers(0, 50),
                st.lists(st.integers(0, 5), min_size=1, max_size=4),
                st.integers(0, 9),
            ),
            min_size=1,
            max_size=6,
        ),
        min_size=1,
        max_size=3,
    )
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    sessions: list[list[tuple[int, list[int], int]]],
) -> None:
    lines: list[dict[str, object]] = []
    prompts: list[list[object]] = []
    t = 0
    for number, requests in enumerate(sessions):
        before: list[int] = []
        rows: Rows = []
        for pause, ids, rest in requests:
            keep = alike(before, ids)
            tokens = 10 * len(ids) + rest
            t += pause
            rows.append(row(t, tokens, keep, ids[keep:]))
            prompts.append([*((number, id_) for id_ in ids), *([object()] if rest else [])])
            before = ids
        lines.append(session(f"s{number}", *rows))
    trace = open_trace(json_lines(tmp_path_factory.mktemp("trace") / "t", lines), session_gap=0.0)
    assert blocks(trace) == numbered(prompts)
