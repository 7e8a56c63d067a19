"""The ceiling: what one endless cache would have had of each prompt, if all requests came to it.

They come in the order of the trace, each after the one before it has ended. In that order no
policy, no number of workers and no memory finds more cached.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim.request import Request, Trace
from sim.results import Ints

_Ids: TypeAlias = NDArray[np.uint32]


def ideal_cached(trace: Trace, block_size: int) -> Ints:
    """Tokens [N] of each prompt of `trace` that were in whole blocks of earlier sequences."""
    cached = np.zeros(len(trace.requests), np.int64)
    # NOTE: what stands for tokens differs with their number, so it is the same for all.
    spelled = any(_apart(request) for request in trace.requests)
    roots: dict[str, _Node] = {}
    for request in trace.requests:
        root = roots.setdefault(request.tenant, _Node(np.empty(0, np.uint32), 0))
        found = min(root.add(_sequence(request, spelled=spelled)), request.prompt.tokens)
        cached[request.number] = found // block_size * block_size
    return cached


class _Sequence(NamedTuple):
    """A prompt and, if it is known, its output.

    Args:
        ids: one for every `size` tokens.
        size: see there.
        missing: so many tokens fewer stand for the last.
    """

    ids: _Ids
    size: int
    missing: int


def _apart(request: Request) -> bool:
    """Whether no ids of the prompt's size stand for prompt and output together."""
    prompt, output = request.prompt, request.output
    size = prompt.block_tokens
    return output is not None and (output.block_tokens != size or prompt.tokens % size > 0)


def _sequence(request: Request, *, spelled: bool) -> _Sequence:
    """Args: `spelled`, whether ids are those of tokens, and not of the blocks of the trace."""
    parts = [request.prompt] + ([] if request.output is None else [request.output])
    if spelled:
        return _Sequence(np.concatenate([np.frombuffer(p.packed(), "<u4") for p in parts]), 1, 0)
    ids = np.concatenate([np.frombuffer(part.ids, np.uint32) for part in parts])
    size = request.prompt.block_tokens
    return _Sequence(ids, size, len(ids) * size - sum(part.tokens for part in parts))


class _Node:
    """Of a tree in which what several sequences begin with is there once.

    Args:
        ids: from the node above to this one; none at the root.
        missing: as of a sequence, where all that were added end here.
    """

    __slots__ = ("children", "ids", "missing")

    def __init__(self, ids: _Ids, missing: int) -> None:
        self.ids = ids
        self.missing = missing
        self.children: dict[int, _Node] = {}

    def add(self, sequence: _Sequence) -> int:
        """Tokens of whole ids that one added to this root before has in common with `sequence`.

        Where the last id of `sequence` is not whole, that may be more than it has.
        """
        ids, size, missing = sequence
        node, at, lacking = self, 0, 0
        while at < len(ids) and (child := node.children.get(int(ids[at]))):
            common = _in_common(child.ids, ids[at:])
            at += common
            if common < len(child.ids):
                node = node.part(child, common)
                break
            lacking = child.missing
            child.missing = min(missing, lacking) if at == len(ids) else 0
            node = child
        if at < len(ids):
            # NOTE: a copy, since a view would keep all of the sequence.
            node.children[int(ids[at])] = _Node(ids[at:].copy(), missing)
        return at * size - lacking

    def part(self, child: "_Node", at: int) -> "_Node":
        """The new node between this one and `child`, to which the first `at` ids of that lead."""
        between = self.children[int(child.ids[0])] = _Node(child.ids[:at], 0)
        child.ids = child.ids[at:]
        between.children[int(child.ids[0])] = child
        return between


def _in_common(one: _Ids, other: _Ids) -> int:
    """How many ids both begin with. Neither is empty."""
    most = min(len(one), len(other))
    differs = one[:most] != other[:most]
    first = int(differs.argmax())
    return first if differs[first] else most
