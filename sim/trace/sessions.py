"""Sessions of coding agents: JSON Lines, one session a line, its requests as rows of columns.

    {"id": NAME, "block_size": TOKENS, "fields": [COLUMN, …], "requests": [[…], …]}

Columns: `t`, seconds from the beginning of the session; `depth`, 0 for the agent and more for its
sub-agents; `in` and `out`, tokens; `keep_prev_prefix`, how many ids of blocks equal those of the
row before; `new_hash_ids`, those after these; `api_time`, seconds that the answer took, 0 if that
is unknown. Ids mean something within the session alone, and a block that is not full has none.
Source: github.com/callanjfox/kv-cache-tester, coded as differences from row to row.

The times of a sub-agent count from its own beginning. It begins when the latest request of the
agent above it is answered.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from sim.request import Content, Trace
from sim.trace.draft import Draft, Ids, trace_of
from sim.trace.row import MAX_TOKENS, Row

GAP: Final = 60.0
"""Seconds from the beginning of one session to that of the next."""

MAX_DEPTH: Final = 100
COLUMNS: Final = ("t", "depth", "in", "out", "keep_prev_prefix", "new_hash_ids", "api_time")


def read(name: str, rows: Iterable[Row], gap: float = GAP) -> Trace:
    """The trace of `rows`, whose sessions begin `gap` seconds after each other.

    A request follows on that one of its session which was answered last before it was sent. An
    answer of no tokens counts as one of one token.

    Raises:
        TraceError: a row is wrong.
    """
    ids = Ids()
    drafts: list[Draft] = []
    for number, row in enumerate(rows):
        block_tokens = row.integer("block_size", 1, MAX_TOKENS)
        if drafts and block_tokens != drafts[0].prompt.block_tokens:
            raise row.wrong(
                f"'block_size' is {block_tokens}, and {drafts[0].prompt.block_tokens} before;"
                " a trace has one: take the lines of one alone"
            )
        drafts += _session(row, number, number * gap, ids)
    return trace_of(name, drafts)


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request: its `draft`, the `depth` of its agent, and when it was answered."""

    draft: Draft
    depth: int
    ended: float


def _session(row: Row, number: int, begin: float, ids: Ids) -> Iterator[Draft]:
    block_tokens = row.integer("block_size", 1, MAX_TOKENS)
    session = row.text("id") or f"session {number}"
    sent: list[_Sent] = []
    # When the agent that asks began, and those above it.
    agents = [begin]
    blocks: array[int] = array("I")
    for request in _requests(row):
        depth = request.integer("depth", 0, MAX_DEPTH)
        del agents[depth + 1 :]
        while len(agents) <= depth:
            agents.append(max((one.ended for one in sent if one.depth < depth), default=begin))
        at = agents[depth] + request.seconds("t", least=0)
        blocks = _blocks(request, blocks, number, ids)
        tokens = request.tokens("in", least=1)
        if len(blocks) != tokens // block_tokens:
            raise request.wrong(
                f"'in' of {tokens:,} tokens is {tokens // block_tokens:,} full blocks of"
                f" {block_tokens}, and 'keep_prev_prefix' and 'new_hash_ids' make {len(blocks):,}"
            )
        rest = [ids.own()] if tokens % block_tokens else []
        answered = [one for one in sent if one.ended <= at]
        after = max(answered, key=lambda one: one.ended, default=None)
        draft = Draft(
            at,
            Content(blocks + array("I", rest), block_tokens, tokens),
            max(1, request.tokens("out")),
            session=session,
            after=after.draft if after else None,
            think=at - after.ended if after else 0.0,
        )
        sent.append(_Sent(draft, depth, at + request.seconds("api_time", least=0)))
        yield draft


def _requests(row: Row) -> Iterator[Row]:
    fields = row.items("fields")
    missing = [column for column in COLUMNS if column not in fields]
    if missing:
        raise row.wrong(f"'fields' must name {', '.join(missing)} too")
    for number, values in enumerate(row.items("requests"), 1):
        if not isinstance(values, list) or len(values) != len(fields):
            raise row.wrong(f"request {number} must be a list of {len(fields)} values")
        yield Row(dict(zip(fields, values, strict=True)), row.file, row.line, number)


def _blocks(request: Row, before: "array[int]", session: int, ids: Ids) -> "array[int]":
    kept = request.integer("keep_prev_prefix", 0, MAX_TOKENS)
    if kept > len(before):
        raise request.wrong(
            f"'keep_prev_prefix' is {kept:,}, and the request before has {len(before):,} ids"
        )
    return before[:kept] + ids.of((session, name) for name in request.names("new_hash_ids"))
