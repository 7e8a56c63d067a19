"""Mooncake's format: ids by place, lengths, and what is wrong with a row."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.trace.formats import open_trace
from sim.trace.row import TraceError
from tests.sim.trace.files import blocks, json_lines, numbered

ROW = {"timestamp": 1500, "input_length": 600, "output_length": 7, "hash_ids": [5, 9]}


def test_equal_ids_are_equal_blocks(tmp_path: Path) -> None:
    file = json_lines(tmp_path / "t", [ROW, ROW | {"timestamp": 2750, "hash_ids": [5, 10**30]}])
    first, second = open_trace(file).requests
    assert (first.at, second.at) == (0.0, 1.25)
    assert (first.number, second.number, first.output_tokens) == (0, 1, 7)
    assert first.prompt.ids[0] == second.prompt.ids[0]
    assert first.prompt.ids[1] != second.prompt.ids[1]
    assert (first.prompt.tokens, first.prompt.block_tokens) == (600, 512)


def test_the_last_block_may_have_no_id(tmp_path: Path) -> None:
    short = ROW | {"hash_ids": [5]}
    first, second = open_trace(json_lines(tmp_path / "t", [short, short])).requests
    assert first.prompt.ids[0] == second.prompt.ids[0]
    assert first.prompt.ids[1] != second.prompt.ids[1]


def test_rows_are_sorted_by_time_and_stay_in_order_where_that_is_equal(tmp_path: Path) -> None:
    rows = [ROW | {"timestamp": time, "output_length": n} for n, time in enumerate([9, 5, 9, 5], 1)]
    requests = open_trace(json_lines(tmp_path / "t", rows)).requests
    assert [each.output_tokens for each in requests] == [2, 4, 1, 3]
    assert [each.number for each in requests] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"hash_ids": [1, 2, 3]}, r"600 tokens is 2 blocks of 512, and 'hash_ids' has 3"),
        ({"hash_ids": []}, r"'hash_ids' has 0"),
        ({"hash_ids": [[1], 2]}, r"'hash_ids' must be a list of integers, and is \[\[1\], 2\]"),
        ({"hash_ids": 5}, r"'hash_ids' must be a list, and is 5"),
        ({"input_length": 0}, r"'input_length' must be an integer from 1 to"),
        ({"input_length": 10**400}, r"'input_length' must be an integer from 1 to .*, and is 1000"),
        ({"output_length": -1}, r"'output_length' must be an integer from 0 to .*, and is -1"),
        ({"output_length": True}, r"'output_length' must be an integer"),
        ({"timestamp": float("nan")}, r"'timestamp' must be a number, and is nan"),
        ({"timestamp": "soon"}, r"'timestamp' must be a number, and is 'soon'"),
        ({"timestamp": None}, r"'timestamp' is missing; there are the fields 'timestamp'"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, wrong: dict[str, object], told: str) -> None:
    file = json_lines(tmp_path / "t.jsonl", [ROW, ROW, ROW | wrong])
    with pytest.raises(TraceError, match=r"t\.jsonl, line 3: .*" + told):
        open_trace(file)


def test_an_answer_of_no_tokens_counts_as_one(tmp_path: Path) -> None:
    (request,) = open_trace(json_lines(tmp_path / "t", [ROW | {"output_length": 0}])).requests
    assert request.output_tokens == 1


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**7),
            st.lists(st.integers(0, 9), min_size=1, max_size=4),
            st.integers(1, 512),
            st.integers(1, 900),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[int, list[int], int, int]]
) -> None:
    rows = [
        {
            "timestamp": at,
            "input_length": 512 * (len(ids) - 1) + rest,
            "output_length": out,
            "hash_ids": ids,
            "more": {"that": "nobody asks for"},
        }
        for at, ids, rest, out in requests
    ]
    trace = open_trace(json_lines(tmp_path_factory.mktemp("trace") / "t", rows))
    requests.sort(key=lambda request: request[0])
    assert blocks(trace) == numbered(ids for _, ids, _, _ in requests)
    assert [round(1000 * each.at) for each in trace.requests] == [
        at - requests[0][0] for at, _, _, _ in requests
    ]
    assert [each.output_tokens for each in trace.requests] == [out for _, _, _, out in requests]
    assert [each.prompt.tokens for each in trace.requests] == [
        512 * (len(ids) - 1) + rest for _, ids, rest, _ in requests
    ]
