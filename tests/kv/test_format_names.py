"""KV formats by name: pairs, layers, what they cost, and how a wrong name is refused."""

import re

import pytest
import torch

from worker.kv.format import (
    Fp8Rows,
    Int4Rows,
    Int8Rows,
    KVShape,
    NoneRows,
    RotatedInt4Rows,
    RotatedInt8Rows,
    Rows,
    by_name,
)

CPU = torch.device("cpu")
SHAPE = KVShape(layers=4, kv_heads=2, head_dim=64, block_size=4)


def kinds(name: str, layers: str = "") -> list[tuple[type[Rows], type[Rows]]]:
    allocated = by_name(name, layers).allocate(SHAPE, 1, CPU, torch.float32)
    return [(type(layer.keys), type(layer.values)) for layer in allocated]


@pytest.mark.parametrize(
    ("name", "keys", "values"),
    [
        ("none", NoneRows, NoneRows),
        ("fp8", Fp8Rows, Fp8Rows),
        ("int8", RotatedInt8Rows, Int8Rows),
        ("int4", RotatedInt4Rows, Int4Rows),
        ("k8v4", RotatedInt8Rows, Int4Rows),
        ("int4/none", RotatedInt4Rows, NoneRows),
        ("none/fp8", NoneRows, Fp8Rows),
    ],
)
def test_names(name: str, keys: type[Rows], values: type[Rows]) -> None:
    assert kinds(name) == [(keys, values)] * 4
    assert by_name(name).name == name


def test_layers_have_their_own_format() -> None:
    exact, half = (NoneRows, NoneRows), (RotatedInt8Rows, Int8Rows)
    mixed = (RotatedInt8Rows, Int4Rows)
    assert kinds("int8", "0:none") == [exact, half, half, half]
    assert kinds("int8", "0,2-3:none") == [exact, half, exact, exact]
    assert kinds("int8", "3:none,0-1:k8v4") == [mixed, mixed, half, exact]
    assert by_name("int8", "0:none").name == "int8 (0:none)"


@pytest.mark.parametrize("name", ["int3", "", "int8/", "/int8", "int8/int8/int8", "k8v4/int8"])
def test_an_unknown_format_names_those_there_are(name: str) -> None:
    told = f"{name!r} is unknown; there are: none, fp8, int8, int4, k8v4, and pairs"
    with pytest.raises(ValueError, match=re.escape(told)):
        by_name(name)


@pytest.mark.parametrize(
    ("layers", "told"),
    [
        ("0", "name no format for the last of them"),
        ("0:none,1", "name no format for the last of them"),
        ("3-1:none", "'3-1' is not a layer or a range of layers"),
        ("-1:none", "'-1' is not a layer"),
        ("0, 1:none", "' 1' is not a layer"),
        (":none", "'' is not a layer"),
        ("0:none,", "'' is not a layer"),
        ("0-1-2:none", "'0-1-2' is not a layer"),
        ("0:int3", "KV format 'int3' is unknown"),
        ("0:none:int8", "KV format 'none:int8' is unknown"),
        ("0-2:none,2:int4", "name layer 2 twice"),
    ],
)
def test_wrong_layers_are_refused(layers: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        by_name("int8", layers)


def test_layers_the_model_does_not_have_are_refused() -> None:
    told = r"int8 \(2-4:none\) names layer 4; the model has layers 0 to 3"
    with pytest.raises(ValueError, match=told):
        by_name("int8", "2-4:none").bytes_per_block(SHAPE, torch.float32)


@pytest.mark.parametrize(
    ("name", "dim", "bits"),
    [
        ("none", 64, 32),
        ("int8", 64, 8.5),
        ("int8", 128, 8.25),
        ("fp8", 64, 8.5),
        ("int4", 64, 5),
        ("int4", 80, 6),
        ("int4", 96, 5),
        ("int4", 128, 5),
        ("k8v4", 64, 6.75),
        ("none/int4", 64, 18.5),
    ],
)
def test_bits_per_element(name: str, dim: int, bits: float) -> None:
    shape, elements = SHAPE._replace(head_dim=dim), 2 * 4 * 4 * 2 * dim
    assert by_name(name).bits_per_element(shape, torch.float32) == bits
    assert by_name(name).bytes_per_block(shape, torch.float32) == elements * bits / 8


def test_layers_count_as_what_they_are() -> None:
    mixed = by_name("int4", "0-1:none")
    assert mixed.bits_per_element(SHAPE, torch.bfloat16) == (16 + 5) / 2


def test_blocks_in_a_budget() -> None:
    kv_format = by_name("none")
    each = kv_format.bytes_per_block(SHAPE, torch.float32)
    assert kv_format.blocks_in(3 * each - 1, SHAPE, torch.float32) == 2
    with pytest.raises(ValueError, match=f"at least 4 blocks, {4 * each} bytes, are needed"):
        kv_format.blocks_in(3 * each, SHAPE, torch.float32, at_least=4)
