"""The block pool against a set."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.kv.pool import BlockPool


@given(st.integers(1, 9), st.lists(st.tuples(st.booleans(), st.integers(0, 10)), max_size=30))
def test_hands_out_each_block_once(num_blocks: int, steps: list[tuple[bool, int]]) -> None:
    pool, taken = BlockPool(num_blocks, 4), array("q")
    for take, count in steps:
        if take and count > pool.num_free:
            with pytest.raises(RuntimeError, match=f"{count} blocks asked, {pool.num_free} free"):
                pool.allocate(count)
        elif take:
            blocks = pool.allocate(count)
            assert len(blocks) == count
            taken += blocks
        else:
            pool.free(taken[:count])
            del taken[:count]
        assert len(set(taken)) == len(taken)
        assert set(taken) <= set(range(num_blocks))
        assert pool.num_free == num_blocks - len(taken)
        pool.check_integrity()


def test_fewer_than_none_are_refused() -> None:
    pool = BlockPool(4, 16)
    with pytest.raises(RuntimeError, match="-1 blocks asked, 4 free of 4"):
        pool.allocate(-1)
    assert pool.num_free == 4


def test_a_block_is_not_freed_twice() -> None:
    pool = BlockPool(2, 4)
    block = pool.allocate(1)
    pool.free(block)
    with pytest.raises(RuntimeError, match="freed twice"):
        pool.free(block)
    pool.check_integrity()


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2)])
def test_blocks_for(tokens: int, blocks: int) -> None:
    assert BlockPool(2, 4).blocks_for(tokens) == blocks


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 4), (4, 0)])
def test_an_empty_pool_is_refused(num_blocks: int, block_size: int) -> None:
    with pytest.raises(ValueError, match="holds nothing"):
        BlockPool(num_blocks, block_size)
