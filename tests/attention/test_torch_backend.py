"""The torch backend against naive float64 attention over the same stored rows, in every format."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attention.batches import Sequence, make_case
from worker.attention.torch_backend import TorchAttention
from worker.kv.format import NAMES

BLOCK = 4

shared_blocks = st.shared(st.integers(0, 2), key="shared")
sequences = shared_blocks.flatmap(
    lambda shared: st.lists(
        st.builds(
            Sequence,
            st.integers(shared * BLOCK, 40),
            st.just(1) | st.integers(1, 12),
            st.booleans(),
        ),
        min_size=1,
        max_size=4,
    )
)


@pytest.mark.parametrize("kv_format", NAMES)
@settings(max_examples=40)
@given(
    sequences=sequences,
    shared=shared_blocks,
    seed=st.integers(0, 2**32 - 1),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 8),
    head_dim=st.sampled_from((64, 80, 96, 128)),
)
def test_equals_float64(
    kv_format: str,
    sequences: list[Sequence],
    shared: int,
    seed: int,
    kv_heads: int,
    group: int,
    head_dim: int,
) -> None:
    case = make_case(
        sequences,
        kv_format=kv_format,
        seed=seed,
        kv_heads=kv_heads,
        group=group,
        head_dim=head_dim,
        block_size=BLOCK,
        shared=shared,
    )
    output = case.attend(TorchAttention())
    torch.testing.assert_close(output.double(), case.expected(), atol=2e-5, rtol=2e-5)


def test_new_rows_go_to_their_slots_and_all_others_stay() -> None:
    case = make_case(
        [Sequence(9, 3), Sequence(7, 1, True), Sequence(0, 5)], kv_format="none", seed=1
    )
    new = case.batch.slots >= 0
    for rows, written in zip(case.kv, (case.keys, case.values), strict=True):
        [memory] = rows.tensors
        blocks = torch.arange(len(memory))
        slots = len(blocks) * rows.block_size
        expected = rows.gather(blocks, slots).clone()
        expected[:, case.batch.slots[new]] = written[new].transpose(0, 1)
        case.attend(TorchAttention())
        assert torch.equal(rows.gather(blocks, slots), expected)
