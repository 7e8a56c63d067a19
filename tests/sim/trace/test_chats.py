"""Logs of chats: prompts that begin alike, answers that are known, times in all their forms."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.request import Request
from sim.trace.formats import open_trace
from sim.trace.row import TraceError
from tests.sim.trace.files import alike, json_lines

SYSTEM = {"role": "system", "content": "You answer in one word. " * 4}
ASK = {"role": "user", "content": "Which is the largest of the planets?"}
ANSWER = {"role": "assistant", "content": "Jupiter."}
MORE = {"role": "user", "content": "And the smallest?"}
LAST = {"role": "assistant", "content": "Mercury."}


def read(path: Path, *rows: dict[str, Any]) -> list[Request]:
    """The requests of a file of `rows`."""
    return list(open_trace(json_lines(path, rows)).requests)


def tokens(request: Request) -> list[int]:
    """Of the prompt, and of the answer, which is known."""
    assert request.output
    assert request.output.tokens == request.output_tokens
    return [*request.prompt.ids, *request.output.ids]


def test_a_conversation_is_a_request_for_each_answer(tmp_path: Path) -> None:
    row = {"timestamp": 7, "messages": [SYSTEM, ASK, ANSWER, MORE, LAST]}
    first, second = read(tmp_path / "t", row)
    assert alike(tokens(first), list(second.prompt.ids)) == len(tokens(first))
    assert first.prompt.tokens == 3 + len(SYSTEM["content"]) // 4 + len(ASK["content"]) // 4 + 2
    assert first.output_tokens == len("Jupiter.") // 4 + 1
    assert (second.after, second.think, second.at) == (0, 0.0, 0.0)
    assert first.session == second.session != ""


def test_messages_have_times_of_their_own(tmp_path: Path) -> None:
    (first, second), milliseconds = (
        read(
            tmp_path / "t",
            {
                "messages": [
                    ASK | {"timestamp": at(1000)},
                    ANSWER | {"timestamp": at(1004)},
                    MORE | {"timestamp": at(1009.5)},
                    LAST,
                ]
            },
        )
        for at in (float, lambda seconds: int(1.7e12 + 1000 * seconds))
    )
    for each in (second, milliseconds[1]):
        assert (each.at, each.after, each.think) == (9.5, 0, 5.5)
    assert first.at == 0.0


def test_an_answer_may_come_at_time_0(tmp_path: Path) -> None:
    times = (0, 0, 5)
    turns = [each | {"time": at} for each, at in zip((ASK, ANSWER, MORE), times, strict=True)]
    _, second = read(tmp_path / "t", {"messages": [*turns, LAST]})
    assert (second.at, second.think) == (5, 5)


def test_no_turn_comes_before_the_one_before_it(tmp_path: Path) -> None:
    messages = [ASK | {"time": 50}, ANSWER | {"time": 99}, MORE | {"time": 20}, LAST]
    other = {"messages": [ASK, ANSWER], "time": 10}
    requests = read(tmp_path / "t", {"messages": messages}, other)
    assert [(each.at, each.after) for each in requests] == [(0.0, None), (40.0, None), (40.0, 1)]
    assert requests[2].think == 0.0


def test_a_request_has_its_answer_wherever_the_api_has_it(tmp_path: Path) -> None:
    asked = {"messages": [SYSTEM, ASK], "created_at": "2025-01-02T03:04:05Z"}
    places: list[dict[str, Any]] = [
        asked | {"response": {"choices": [{"message": ANSWER}]}},
        asked | {"choices": [{"message": ANSWER}], "usage": {"completion_tokens": 99}},
        asked | {"response": "Jupiter."},
        {"request": asked, "response": ANSWER},
        {"body": asked, "response": ANSWER},
    ]
    first, *others = read(tmp_path / "t", *places)
    for each in others:
        assert tokens(each) == tokens(first)
    assert first.output_tokens == 3


def test_the_length_of_an_answer_is_enough(tmp_path: Path) -> None:
    asked = {"messages": [ASK], "time": 5}
    (one, other) = read(
        tmp_path / "t",
        asked | {"usage": {"completion_tokens": 12}},
        asked | {"response": {"usage": {"completion_tokens": 0}}},
    )
    assert (one.output_tokens, one.output, other.output_tokens) == (12, None, 1)


def test_who_begins_with_all_that_the_session_asked_waits_for_the_answer(tmp_path: Path) -> None:
    usage = {"usage": {"completion_tokens": 3}}
    requests = read(
        tmp_path / "t",
        {"time": 1, "session": "a", "messages": [ASK], **usage},
        {"time": 2, "session": "b", "messages": [ASK, ANSWER, MORE], **usage},
        {"time": 3, "session": "a", "messages": [ASK, ANSWER, MORE], **usage},
        {"time": 4, "session": "a", "messages": [MORE], **usage},
        {"time": 5, "messages": [MORE, ANSWER, ASK], **usage},
    )
    assert [each.after for each in requests] == [None, None, 0, None, None]


def test_tools_come_first_and_parts_that_are_no_text_count(tmp_path: Path) -> None:
    tool = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9000}}
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}
    parts = {"role": "user", "content": [{"type": "text", "text": "Look: "}, image]}
    plain, offered, seen = read(
        tmp_path / "t",
        {"time": 1, "messages": [ASK, ANSWER]},
        {"time": 2, "messages": [ASK, call], "tools": tool},
        {"time": 3, "messages": [parts, ANSWER]},
    )
    assert alike(tokens(plain), tokens(offered)) == 0
    assert offered.output_tokens > 5
    assert seen.prompt.tokens == 1 + 2 + 1 + 1 + 1


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (
            {"messages": [ASK, ANSWER]},
            "neither it nor its first message has a time: 'timestamp' or",
        ),
        ({"messages": [ASK], "usage": {"completion_tokens": 1}}, "it has no time: 'timestamp' or"),
        ({"messages": [ASK], "time": 1}, "how long the answer was is not said: there is no 'resp"),
        ({"messages": [ASK], "time": 1, "usage": {}}, "'completion_tokens' is missing"),
        ({"messages": [ASK], "time": 1, "usage": {"completion_tokens": -1}}, "integer from 0"),
        ({"messages": [ASK], "time": 1, "response": {"id": 5}}, "neither a message nor 'usage'"),
        ({"messages": [], "time": 1}, "'messages' must be a list of objects, at least one"),
        ({"messages": ["hello"], "time": 1}, "'messages' must be a list of objects, at least one"),
        ({"messages": [ASK, ANSWER], "time": "noon"}, "'time' must be a time"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: dict[str, Any], told: str) -> None:
    with pytest.raises(TraceError, match="t, line 2: .*" + told):
        read(tmp_path / "t", {"time": 0, "messages": [ASK, ANSWER]}, row)


@given(st.text(max_size=30), st.text(max_size=20), st.text(max_size=20))
def test_texts_have_in_common_what_they_begin_with(
    tmp_path_factory: pytest.TempPathFactory, common: str, one: str, other: str
) -> None:
    rows = [
        {"time": at, "messages": [{"role": "user", "content": common + rest}, ANSWER]}
        for at, rest in enumerate((one, other))
    ]
    first, second = read(tmp_path_factory.mktemp("trace") / "t", *rows)
    data = [(common + rest).encode(errors="surrogatepass") for rest in (one, other)]
    same = alike(*data)
    found = alike(list(first.prompt.ids), list(second.prompt.ids))
    if data[0] == data[1]:
        assert found == first.prompt.tokens
    else:
        assert found == 1 + same // 4
