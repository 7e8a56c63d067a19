"""The log that `radixgate gateway --request-log` writes: JSON Lines of lengths and hashes.

What a line says is told by `gateway.serve.request_log`.
"""

import binascii
from array import array
from base64 import b64decode
from collections.abc import Iterable, Sequence
from itertools import repeat

from radixgate.prefix import HASH_BYTES, TOKEN_BYTES, PrefixHash, unpack_hashes

from sim.request import Content, Trace
from sim.trace.draft import Draft, Ids, trace_of
from sim.trace.row import MAX_TOKENS, Row


def read(name: str, rows: Iterable[Row]) -> Trace:
    """The trace of `rows`, which are of one stride. An answer of no tokens counts as one of one.

    A request whose prompt has a boundary that lies in the answer of another one follows on that,
    and is of its session, if that was answered before.

    Raises:
        TraceError: a row is wrong.
    """
    ids = Ids()
    drafts: list[Draft] = []
    stride = 0
    # By the boundaries of answers: whose, and when that ended.
    answers: dict[PrefixHash, tuple[Draft, float]] = {}
    for row in sorted(rows, key=lambda row: row.seconds("time")):
        stride = stride or row.integer("stride", 1, MAX_TOKENS)
        if row.integer("stride", 1, MAX_TOKENS) != stride:
            raise row.wrong(
                f"'stride' is {row.value('stride')}, and {stride} in rows before; a trace is of"
                " one model: take the lines of one alone"
            )
        draft, hashes = _draft(row, stride, ids)
        inside = draft.prompt.tokens // stride
        found = (answers[each] for each in reversed(hashes[:inside]) if each in answers)
        before, ended = next(found, (None, 0.0))
        draft.session = str(len(drafts))
        if before is not None and ended <= draft.at:
            draft.after, draft.think, draft.session = before, draft.at - ended, before.session
        end = draft.at + row.seconds("seconds", least=0)
        answers.update(zip(hashes[inside:], repeat((draft, end))))
        drafts.append(draft)
    return trace_of(name, drafts)


def _draft(row: Row, stride: int, ids: Ids) -> tuple[Draft, Sequence[PrefixHash]]:
    prompt, output = row.tokens("prompt_tokens", least=1), row.tokens("output_tokens")
    hashes = _hashes(row, (prompt + output) // stride)
    # One for every stride of prompt and answer; of the last, if it is not full, nobody knows more.
    blocks = ids.of(hashes) + array("I", [ids.own()] if (prompt + output) % stride else [])
    whole = Content(blocks, stride, prompt + output)
    answer = array("I", whole.packed()[prompt * TOKEN_BYTES :])
    draft = Draft(
        row.seconds("time"),
        Content(blocks[: -(-prompt // stride)], stride, prompt),
        max(1, output),
        Content(answer, 1, output) if output else None,
        tenant=row.text("tenant"),
        priority=row.integer("priority", -(2**31), 2**31 - 1) if row.has("priority") else 0,
    )
    return draft, hashes


def _hashes(row: Row, count: int) -> list[PrefixHash]:
    try:
        packed = b64decode(row.text("hashes"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise row.wrong(f"'hashes' must be base64: {error}") from error
    if len(packed) != count * HASH_BYTES:
        raise row.wrong(
            f"'hashes' must be {count:,} of {HASH_BYTES} bytes, one for each stride of prompt and"
            f" output, and has {len(packed):,} bytes"
        )
    return unpack_hashes(packed)
