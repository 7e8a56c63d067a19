"""Traces as those of Mooncake: JSON Lines of lengths, and of ids for blocks of 512 tokens.

    {"timestamp": MS, "input_length": TOKENS, "output_length": TOKENS, "hash_ids": [ID, …]}

Equal ids mean equal prefixes up to there. A block that is not full has an id too, or none.
Source: github.com/kvcache-ai/Mooncake, FAST25-release.
"""

from array import array
from collections.abc import Iterable
from typing import Final

from sim.request import Content, Trace
from sim.trace.draft import Draft, Ids, trace_of
from sim.trace.row import Row

BLOCK_TOKENS: Final = 512


def read(name: str, rows: Iterable[Row]) -> Trace:
    """The trace of `rows`. An answer of no tokens counts as one of one token.

    Raises:
        TraceError: a row is wrong.
    """
    ids = Ids()
    return trace_of(name, [_draft(row, ids) for row in rows])


def _draft(row: Row, ids: Ids) -> Draft:
    tokens = row.tokens("input_length", least=1)
    names = row.names("hash_ids") if tokens >= BLOCK_TOKENS else row.values.get("hash_ids") or []
    full, blocks = tokens // BLOCK_TOKENS, -(-tokens // BLOCK_TOKENS)
    if not full <= len(names) <= blocks:
        raise row.wrong(
            f"'input_length' of {tokens:,} tokens is {blocks:,} blocks of {BLOCK_TOKENS}, and"
            f" 'hash_ids' has {len(names):,}"
        )
    own = [ids.own()] if len(names) < blocks else []
    return Draft(
        row.seconds("timestamp") / 1000,
        Content(ids.of(names) + array("I", own), BLOCK_TOKENS, tokens),
        max(1, row.tokens("output_length")),
    )
