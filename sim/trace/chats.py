"""Logs of chats as the OpenAI API has them: JSON Lines of messages and times.

    {"timestamp": TIME, "session": NAME, "messages": [{"role": ROLE, "content": TEXT}, …], …}

A line is a request if it has an answer: in `response` (what the API gave, a message, or text), in
`choices`, or its length in `usage`. Else it is a conversation, and each message of the role
"assistant" the answer to a request with the messages before it. What was asked may also lie in
`request` or `body`. A time, of the line or of a message, is in seconds, in milliseconds, or as in
ISO 8601.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from sim.request import Content, Trace
from sim.trace import message
from sim.trace.draft import Draft, Ids, trace_of
from sim.trace.row import MAX_TOKENS, Row

TIMES: Final = ("timestamp", "time", "created_at", "created")
SESSIONS: Final = ("session", "session_id", "conversation_id", "user")
ANSWERS: Final = ("response", "choices", "usage")
MILLISECONDS_FROM: Final = 1e11
"""Seconds of that size are thousands of years from now."""

Message = Mapping[str, Any]


def read(name: str, rows: Iterable[Row]) -> Trace:
    """The trace of `rows`.

    In a conversation a request follows on the one before. In a log of requests it follows on the
    last one of its session, if it begins with all that this asked. Without the time of an answer it
    is sent at its own time, but not before the answer.

    Raises:
        TraceError: a row is wrong.
    """
    reader = _Reader()
    return trace_of(name, [draft for row in rows for draft in reader.drafts(row)])


class _Reader:
    def __init__(self) -> None:
        self._ids = Ids()
        self._last: dict[str, Draft] = {}

    def drafts(self, row: Row) -> Iterator[Draft]:
        inner = next((row.values[key] for key in ("request", "body") if row.has(key)), None)
        if isinstance(inner, Mapping):
            row = replace(row, values={**inner, **row.values})
        messages = row.items("messages")
        if not messages or not all(isinstance(each, Mapping) for each in messages):
            raise row.wrong("'messages' must be a list of objects, at least one")
        if any(map(row.has, ANSWERS)):
            yield self._request(row, messages)
        else:
            yield from self._conversation(row, messages)

    def _request(self, row: Row, messages: list[Message]) -> Draft:
        prompt = self._ids.of(message.tools(row.values.get("tools")))
        for each in messages:
            prompt += self._ids.of([message.begin(str(each.get("role"))), *message.said(each)])
        prompt += self._ids.of([message.begin("assistant")])
        answer = _answer(row)
        output = None if answer is None else self._ids.of(message.said(answer))
        draft = _draft(row, _time(row), prompt, output)
        if draft.session:
            before = self._last.get(draft.session)
            if before and before.at <= draft.at and _continues(prompt, before.prompt.ids):
                draft.after = before
            self._last[draft.session] = draft
        return draft

    def _conversation(self, row: Row, messages: list[Message]) -> Iterator[Draft]:
        at = _time(row) if any(map(row.has, TIMES)) else None
        before: Draft | None = None
        answered: float | None = None
        prompt = self._ids.of(message.tools(row.values.get("tools")))
        for number, each in enumerate(messages, 1):
            part = replace(row, values=each, part=number)
            moment = _time(part) if any(map(part.has, TIMES)) else None
            prompt = prompt + self._ids.of([message.begin(part.text("role"))])
            said = self._ids.of(message.said(each))
            if part.text("role") == "assistant":
                if at is None:
                    raise row.wrong(f"neither it nor its first message has a time: {_or(TIMES)}")
                draft = _draft(row, at if before is None else max(at, before.at), prompt, said)
                draft.session = draft.session or f"line {row.line}"
                draft.after = before
                if before is not None and answered is not None:
                    draft.think = max(0.0, draft.at - answered)
                yield draft
                before, answered = draft, moment
            elif moment is not None:
                at = moment
            prompt = prompt + said
        if before is None:
            raise row.wrong(
                f"how long the answer was is not said: there is no {_or(ANSWERS)}, and no message"
                " of the role 'assistant'"
            )


def _draft(row: Row, at: float, prompt: "array[int]", output: "array[int] | None") -> Draft:
    if max(len(prompt), len(output or ())) > MAX_TOKENS:
        raise row.wrong(f"prompt or answer is longer than {MAX_TOKENS:,} tokens")
    known = None if output is None else Content(output, 1, len(output))
    return Draft(
        at,
        Content(prompt, 1, len(prompt)),
        _usage(row) if known is None else known.tokens,
        known,
        session=next(filter(None, map(row.text, SESSIONS)), ""),
    )


def _time(row: Row) -> float:
    field = next(filter(row.has, TIMES), None)
    if field is None:
        raise row.wrong(f"it has no time: {_or(TIMES)}")
    time = row.moment(field)
    return time / 1000 if time >= MILLISECONDS_FROM else time


def _answer(row: Row) -> Message | None:
    """The message that is the answer, if there is one."""
    response = row.values.get("response")
    if isinstance(response, str):
        return {"content": response}
    for place in (response, row.values):
        choices = place.get("choices") if isinstance(place, Mapping) else None
        if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
            answer = choices[0].get("message")
            if isinstance(answer, Mapping):
                return answer
    return response if isinstance(response, Mapping) and "content" in response else None


def _usage(row: Row) -> int:
    """The length of an answer of which nothing else is known."""
    response = row.values.get("response")
    for place in (row.values, response):
        usage = place.get("usage") if isinstance(place, Mapping) else None
        if isinstance(usage, Mapping):
            return max(1, replace(row, values=usage).tokens("completion_tokens"))
    raise row.wrong("the answer has neither a message nor 'usage'")


def _continues(prompt: "array[int]", before: "array[int]") -> bool:
    return len(prompt) > len(before) and prompt[: len(before)] == before


def _or(names: Iterable[str]) -> str:
    return " or ".join(map(repr, names))
