"""The Triton backend in Triton's interpreter, against float64; `test_triton.py` runs this file."""

import pytest
import torch

from tests.attention.batches import Sequence, make_case
from worker.attention.triton_backend import TritonAttention

MIXED = [Sequence(37, 1), Sequence(0, 20), Sequence(130, 9), Sequence(270, 1, True)]


@pytest.mark.parametrize(
    ("kv_format", "head_dim", "group"),
    [
        ("none", 64, 1),
        ("none", 96, 3),
        ("int8", 80, 2),
        ("fp8", 64, 8),
        ("int4", 64, 4),
        ("int4", 80, 1),
        ("int4", 96, 2),
        ("k8v4", 128, 7),
        ("int4/none", 80, 2),
    ],
)
def test_equals_float64(kv_format: str, head_dim: int, group: int) -> None:
    case = make_case(MIXED, kv_format=kv_format, seed=group, head_dim=head_dim, group=group)
    output = case.attend(TritonAttention(processors=8))
    torch.testing.assert_close(output.double(), case.expected(), atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize("block_size", [1, 5])
def test_equals_float64_with_shared_blocks(block_size: int) -> None:
    sequences = [Sequence(130, 1), Sequence(140, 3)]
    case = make_case(
        sequences, kv_format="int8", seed=1, head_dim=16, block_size=block_size, shared=10
    )
    output = case.attend(TritonAttention(processors=8))
    torch.testing.assert_close(output.double(), case.expected(), atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize("kv_format", ["none", "fp8", "int8", "int4"])
def test_what_is_not_finite_stays_in_its_sequence(kv_format: str) -> None:
    case = make_case([Sequence(40, 1), Sequence(40, 1)], kv_format=kv_format, seed=1, head_dim=16)
    case.values[:1] = torch.nan
    output = case.attend(TritonAttention(processors=8))
    assert not output[0].isfinite().any()
    assert output[1].isfinite().all()
