"""The traces of Azure's LLM inference, of 2023 and 2024: CSV of times and lengths.

    TIMESTAMP,ContextTokens,GeneratedTokens

Nothing is known of the prompts, so none has anything in common with another.
Source: github.com/Azure/AzurePublicDataset.
"""

from collections.abc import Iterable
from typing import Final

from sim.request import Trace
from sim.trace.draft import Draft, Ids, trace_of
from sim.trace.row import Row

BLOCK_TOKENS: Final = 64


def read(name: str, rows: Iterable[Row]) -> Trace:
    """The trace of `rows`. An answer of no tokens counts as one of one token.

    Raises:
        TraceError: a row is wrong.
    """
    ids = Ids()
    return trace_of(
        name,
        [
            Draft(
                row.moment("TIMESTAMP"),
                ids.unique(row.tokens("ContextTokens", least=1), BLOCK_TOKENS),
                max(1, row.tokens("GeneratedTokens")),
            )
            for row in rows
        ],
    )
