"""The ceiling: what one endless cache would have had of each prompt, if all requests came to it.

They come in the order of the trace, each after the one before it has ended. In that order no
policy, no number of workers and no memory finds more cached.
"""

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sim.request import Request, Trace
from sim.results import Ints


class _Edge(NamedTuple):
    """To `node`, by `tokens` tokens: the most that what stands at the edge has stood for."""

    node: int
    tokens: int


def ideal_cached(trace: Trace, block_size: int) -> Ints:
    """Tokens [N] of each prompt of `trace` that were in whole blocks of earlier sequences."""
    # A trie in one dict: by node and what stands at the edge. Roots are below 0, one a tenant.
    edges: dict[tuple[int, int | bytes], _Edge] = {}
    roots: dict[str, int] = {}
    cached = np.zeros(len(trace.requests), np.int64)
    spelled = any(_apart(request) for request in trace.requests)
    for request in trace.requests:
        node = roots.setdefault(request.tenant, -1 - len(roots))
        known, matched = True, 0
        for part, tokens in _parts(request, block_size, spelled=spelled):
            edge = edges.get((node, part))
            if known and edge is not None:
                matched += min(tokens, edge.tokens)
            known = known and edge is not None and edge.tokens >= tokens
            if edge is None:
                edge = edges[node, part] = _Edge(len(edges), tokens)
            elif edge.tokens < tokens:
                edge = edges[node, part] = _Edge(edge.node, tokens)
            node = edge.node
        whole = min(matched, request.prompt.tokens) // block_size * block_size
        cached[request.number] = whole
    return cached


def _apart(request: Request) -> bool:
    """Whether the blocks of the output are others than those of the prompt."""
    output = request.output
    return output is not None and output.block_tokens != request.prompt.block_tokens


def _parts(
    request: Request, block_size: int, *, spelled: bool
) -> Iterator[tuple[int | bytes, int]]:
    """The prompt, and the output if it is known, in parts; each with its tokens.

    A part is a block, or an id where blocks do not consist of whole ids. What is left behind the
    last whole block is left out.

    Args: `spelled`, whether parts are tokens, and not what stands for them in prompts.
    """
    prompt, output = request.prompt, request.output
    ids, tokens, size = prompt.ids, prompt.tokens, prompt.block_tokens
    if spelled:
        packed = prompt.packed() + (b"" if output is None else output.packed())
        ids, size = array("I", packed), 1
        tokens = len(ids)
    elif output is not None and tokens == len(ids) * size:
        ids, tokens = ids + output.ids, tokens + output.tokens
    step = 1 if block_size % size else block_size // size
    for start in range(0, len(ids) - step + 1, step):
        part = ids[start] if step == 1 else ids[start : start + step].tobytes()
        yield part, min(step * size, tokens - start * size)
