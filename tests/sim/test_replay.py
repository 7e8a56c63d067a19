from array import array

from hypothesis import given
from hypothesis import strategies as st

from sim.request import Content
from tests.sim.replay import packed

VOCAB = 512
BLOCK = 16


def content(ids: list[int], tokens: int) -> Content:
    return Content(array("I", ids), BLOCK, tokens)


ids = st.lists(st.integers(0, 5), min_size=1, max_size=6)


def shared(one: bytes, other: bytes) -> int:
    """Tokens that both begin with."""
    pairs = zip(memoryview(one).cast("I"), memoryview(other).cast("I"), strict=False)
    count = 0
    for ours, theirs in pairs:
        if ours != theirs:
            break
        count += 1
    return count


@given(ids, ids, st.integers(0, BLOCK - 1), st.integers(0, BLOCK - 1))
def test_token_ids_are_equal_where_the_content_is(
    one: list[int], other: list[int], short: int, shorter: int
) -> None:
    first = content(one, len(one) * BLOCK - short)
    second = content(other, len(other) * BLOCK - shorter)
    ours, theirs = packed(first, VOCAB), packed(second, VOCAB)
    assert (len(ours), len(theirs)) == (4 * first.tokens, 4 * second.tokens)
    assert max(memoryview(ours).cast("I")) < VOCAB
    assert shared(ours, theirs) == shared(first.packed(), second.packed())


def test_ids_of_tokens_are_kept_apart() -> None:
    prompt = Content(array("I", range(100)), 1, 100)
    assert len(set(memoryview(packed(prompt, 1 << 20)).cast("I"))) == 100


def test_blocks_differ_even_where_there_are_more_of_them_than_tokens() -> None:
    count = 10 * VOCAB
    blocks = packed(content(list(range(count)), count * BLOCK), VOCAB)
    size = 4 * BLOCK
    assert len({blocks[at : at + size] for at in range(0, len(blocks), size)}) == count
