"""The torch backend against attention in float64 on random paged batches, in every KV format."""

import pytest
import torch
from hypothesis import given, settings

from tests.attention.cases import FORMATS, Geometry, Part, geometries, make_case, parts, seeds
from worker.attention.torch_backend import TorchAttention


@pytest.mark.parametrize("kv_format", FORMATS)
@settings(max_examples=40)
@given(parts, geometries, seeds)
def test_equals_attention_in_float64(
    kv_format: str, sequences: list[Part], geometry: Geometry, seed: int
) -> None:
    case = make_case(kv_format, sequences, geometry, seed)
    output = TorchAttention().attend(
        case.queries, case.keys, case.values, batch=case.batch, kv=case.kv, scale=case.scale
    )
    assert torch.allclose(output.double(), case.expected, atol=2e-5, rtol=2e-5)
    for rows, rows_after in zip(case.kv, case.kv_after, strict=True):
        for tensor, after in zip(rows.tensors, rows_after.tensors, strict=True):
            assert torch.equal(tensor.float(), after.float())
