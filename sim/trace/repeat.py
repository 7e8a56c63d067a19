"""A trace made longer: again and again, with other prompts each time."""

from array import array
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from sim.request import LAST_ID, Content, Request, Trace
from sim.trace.row import TraceError


def repeated(trace: Trace, count: int) -> Trace:
    """The first `count` requests of `trace`, repeated without end at its own rate.

    No repetition has a token in common with another one, nor a session.

    Raises:
        TraceError: there are no requests, or too many ids.
    """
    if not trace.requests:
        raise TraceError(f"{trace.name}: there is no request to repeat")
    rounds = -(-count // len(trace.requests))
    ids = 1 + max(
        max(content.ids)
        for each in trace.requests
        for content in (each.prompt, each.output)
        if content
    )
    if rounds * ids > LAST_ID:
        raise TraceError(f"{trace.name}: {rounds} times {ids:,} ids are more than {LAST_ID:,}")
    requests = (each for number in range(rounds) for each in _round(trace, number, ids))
    return Trace(
        f"{trace.name} to {count:,} requests",
        [each for each, _ in zip(requests, range(count), strict=False)],
    )


def _round(trace: Trace, number: int, ids: int) -> Iterator[Request]:
    count = len(trace.requests)
    last = trace.requests[-1].at
    begin = number * (last + last / max(1, count - 1))
    for each in trace.requests:
        yield replace(
            each,
            number=each.number + number * count,
            at=each.at + begin,
            prompt=_shifted(each.prompt, number * ids),
            output=each.output and _shifted(each.output, number * ids),
            session=each.session and f"{each.session} #{number}",
            after=None if each.after is None else each.after + number * count,
        )


def _shifted(content: Content, by: int) -> Content:
    shifted = np.frombuffer(content.ids, "<u4") + np.uint32(by)
    return content._replace(ids=array("I", shifted.tobytes()))
