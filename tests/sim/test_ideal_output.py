"""The ceiling where an answer begins within a block of the prompt, as in a gateway's own log."""

from array import array
from itertools import repeat

from hypothesis import given
from hypothesis import strategies as st

from sim.ideal import ideal_cached
from sim.request import Content, Request, Trace
from tests.sim.small import known_tokens
from tests.sim.trace.files import alike

STRIDE, BLOCK = 8, 4


def request(number: int, prompt: list[int], output: list[int]) -> Request:
    """With prompts in strides, of which each stands for what goes before it too."""
    whole = prompt + output
    strides = -(-len(whole) // STRIDE)
    blocks = [hash(tuple(whole[: STRIDE * (at + 1)])) % 2**31 for at in range(strides)]
    tokens = array("I", [block for block in blocks for _ in repeat(None, STRIDE)])
    return Request(
        number,
        float(number),
        Content(array("I", blocks[: -(-len(prompt) // STRIDE)]), STRIDE, len(prompt)),
        max(1, len(output)),
        Content(tokens[len(prompt) : len(whole)], 1, len(output)) if output else None,
    )


TOKENS = st.lists(st.integers(0, 1), max_size=20)


@given(st.lists(st.tuples(TOKENS.filter(bool), TOKENS), min_size=1, max_size=6))
def test_answers_are_found_again(served: list[tuple[list[int], list[int]]]) -> None:
    trace = Trace("t", [request(at, *each) for at, each in enumerate(served)])
    known = [known_tokens(each) for each in trace.requests]
    expected = [
        max((alike(before, known[at]) for before in known[:at]), default=0)
        for at in range(len(known))
    ]
    assert list(ideal_cached(trace, BLOCK)) == [
        min(found, each.prompt.tokens) // BLOCK * BLOCK
        for found, each in zip(expected, trace.requests, strict=True)
    ]


def test_the_next_turn_finds_the_answer() -> None:
    first, answer = [1] * 10, [2] * 14
    trace = Trace("t", [request(0, first, answer), request(1, [*first, *answer, *[3] * 6], [4])])
    assert list(ideal_cached(trace, BLOCK)) == [0, 24]
