"""The formats that know lengths alone: Azure's and BurstGPT's."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.trace.formats import open_trace
from sim.trace.row import TraceError
from tests.sim.trace.files import text

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
SESSIONS = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
)


def test_times_of_both_years_are_understood(tmp_path: Path) -> None:
    for first, second in [
        ("2023-11-16 18:15:46.6805900", "2023-11-16 18:15:50.9951690"),
        ("2024-05-10 00:00:00.009930+00:00", "2024-05-10 02:00:04.324509+02:00"),
    ]:
        file = text(tmp_path / "t", AZURE, f"{first},374,44", f"{second},396,109")
        assert [each.at for each in open_trace(file).requests] == [0.0, pytest.approx(4.314579)]


def test_prompts_have_nothing_in_common(tmp_path: Path) -> None:
    first, second = open_trace(text(tmp_path / "t", AZURE, "0,130,1", "0,130,0")).requests
    assert first.prompt.tokens == second.prompt.tokens == 130
    assert len(first.prompt.ids) == 3
    assert not set(first.prompt.ids) & set(second.prompt.ids)
    assert (first.output_tokens, second.output_tokens) == (1, 1)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("yesterday,5,5", "'TIMESTAMP' must be a time, in seconds or as in ISO 8601"),
        ("0,-5,5", "'ContextTokens' must be an integer from 1 to .*, and is '-5'"),
        ("0,0,5", "'ContextTokens' must be an integer from 1"),
        ("0,1.5,5", "'ContextTokens' must be an integer from 1 to .*, and is '1.5'"),
        ("0,nan,5", "'ContextTokens' must be an integer"),
        ("0,99999999999999999999,5", "'ContextTokens' must be an integer"),
        ("inf,5,5", "'TIMESTAMP' must be a time"),
        ("0,,5", "'ContextTokens' is missing"),
        ("0,5", "2 columns, and the first line names 3: TIMESTAMP, ContextTokens"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, line: str, told: str) -> None:
    with pytest.raises(TraceError, match="t, line 3: " + told):
        open_trace(text(tmp_path / "t", AZURE, "0,1,1", line))


def test_failures_are_left_out(tmp_path: Path) -> None:
    rows = ["5,ChatGPT,472,18,490,API log", "9,GPT-4,0,0,0,API log", "7,GPT-4,17,0,17,API log"]
    (request,) = open_trace(text(tmp_path / "t", BURST, *rows)).requests
    assert (request.at, request.prompt.tokens, request.output_tokens) == (0.0, 472, 18)
    with pytest.raises(TraceError, match="there is no request in it"):
        open_trace(text(tmp_path / "t", BURST, *rows[1:]))


def test_a_conversation_goes_on_after_its_answers(tmp_path: Path) -> None:
    file = text(
        tmp_path / "t",
        SESSIONS,
        "100.0,a,10,GPT-4,5,5,10,Conversation log",
        "104.0,b,3,GPT-4,5,5,10,Conversation log",
        "105.0,a,3,GPT-4,5,5,10,Conversation log",
        "120.0,a,3,GPT-4,5,5,10,Conversation log",
        "121.0,,3,GPT-4,5,5,10,API log",
        "122.0,,3,GPT-4,5,5,10,API log",
    )
    requests = open_trace(file).requests
    assert [each.session for each in requests] == ["a", "b", "a", "a", "", ""]
    assert [each.after for each in requests] == [None, None, None, 2, None, None]
    assert requests[3].think == 12.0


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**6).map(lambda n: n / 8), st.integers(1, 9000), st.integers(1, 900)
        ),
        min_size=1,
        max_size=9,
    ),
    st.booleans(),
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[float, int, int]], burst: bool
) -> None:
    file = tmp_path_factory.mktemp("trace") / "t"
    if burst:
        text(file, BURST, *(f"{at},GPT-4,{a},{b},{a + b},API log" for at, a, b in requests))
    else:
        text(file, AZURE, *(f"{at},{a},{b}" for at, a, b in requests))
    trace = open_trace(file)
    requests.sort(key=lambda request: request[0])
    begin = requests[0][0]
    assert [
        (each.at + begin, each.prompt.tokens, each.output_tokens) for each in trace.requests
    ] == (requests)
    ids = [set(each.prompt.ids) for each in trace.requests]
    assert len(set().union(*ids)) == sum(map(len, ids))
