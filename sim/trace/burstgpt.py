"""The traces of BurstGPT: CSV of times and lengths, in its second release with conversations too.

    Timestamp[,Session ID,Elapsed time],Model,Request tokens,Response tokens,Total tokens,Log Type

Nothing is known of the prompts, so none has anything in common with another, not even in one
conversation. What had no prompt or no answer has failed, and is left out.
Source: github.com/HPMLL/BurstGPT.
"""

from collections.abc import Iterable
from typing import Final

from sim.request import Trace
from sim.trace.draft import Draft, Ids, trace_of
from sim.trace.row import Row

BLOCK_TOKENS: Final = 64


def read(name: str, rows: Iterable[Row]) -> Trace:
    """The trace of `rows`, of all models. A request follows on the last one of its conversation,
    if that was answered before.

    Raises:
        TraceError: a row is wrong.
    """
    ids = Ids()
    drafts: list[Draft] = []
    last: dict[str, tuple[Draft, float]] = {}
    for row in rows:
        prompt, output = row.tokens("Request tokens"), row.tokens("Response tokens")
        if not (prompt and output):
            continue
        at, session = row.seconds("Timestamp"), row.text("Session ID")
        draft = Draft(at, ids.unique(prompt, BLOCK_TOKENS), output, session=session)
        if session and session in last:
            before, ended = last[session]
            if before.at <= ended <= at:
                draft.after, draft.think = before, at - ended
        if session and row.has("Elapsed time"):
            last[session] = draft, at + row.seconds("Elapsed time", least=0)
        drafts.append(draft)
    return trace_of(name, drafts)
