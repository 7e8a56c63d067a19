"""The compiled backend against naive float64 attention over the same stored rows."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attention.batches import Sequence, make_case
from worker.attention.default import default_attention
from worker.attention.numba_backend import NumbaAttention, make_plan
from worker.attention.torch_backend import TorchAttention
from worker.kernels import attention as kernels

FORMATS = ["none", "fp8", "int8", "int4", "k8v4"]
CPU = torch.device("cpu")
MIXED = [Sequence(37, 1), Sequence(0, 70), Sequence(511, 9), Sequence(900, 1, True), Sequence(2, 3)]


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kv_format", FORMATS)
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128])
@pytest.mark.parametrize("group", [1, 3, 8])
def test_equals_float64(threads: int, kv_format: str, head_dim: int, group: int) -> None:
    case = make_case(MIXED, kv_format=kv_format, seed=group, head_dim=head_dim, group=group)
    output = case.attend(NumbaAttention())
    torch.testing.assert_close(output.double(), case.expected(), atol=2e-6, rtol=2e-5)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(deadline=None, max_examples=60)
@given(
    sequences=st.lists(
        st.builds(Sequence, st.integers(64, 700), st.integers(1, 80)), min_size=1, max_size=5
    ),
    seed=st.integers(0, 2**32 - 1),
    group=st.integers(1, 8),
    block_size=st.sampled_from([1, 5, 16, 64]),
    shared=st.integers(0, 1),
)
def test_equals_float64_with_any_blocks(
    sequences: list[Sequence], seed: int, group: int, block_size: int, shared: int
) -> None:
    case = make_case(
        sequences, kv_format="none", seed=seed, group=group, head_dim=8, block_size=block_size,
        shared=shared,
    )  # fmt: skip
    output = case.attend(NumbaAttention())
    torch.testing.assert_close(output.double(), case.expected(), atol=2e-6, rtol=2e-5)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kv_format", FORMATS)
@pytest.mark.parametrize("new", [1, 9], ids=["few rows", "many rows"])
def test_what_is_not_finite_stays_in_its_sequence(kv_format: str, new: int) -> None:
    case = make_case([Sequence(40, new), Sequence(40, new)], kv_format=kv_format, seed=1)
    case.values[:new] = torch.nan
    output = case.attend(NumbaAttention())
    assert not output[new - 1].isfinite().any()
    assert output[new:].isfinite().all()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kv_format", FORMATS)
def test_new_tokens_are_written_as_torch_writes_them(threads: int, kv_format: str) -> None:
    ours, expected = (make_case(MIXED, kv_format=kv_format, seed=3) for _ in range(2))
    ours.attend(NumbaAttention())
    expected.attend(TorchAttention())
    for table, length in zip(ours.batch.block_tables, ours.batch.context_lengths, strict=True):
        got, want = (case.kv.gather(table, int(length)) for case in (ours, expected))
        if kv_format in {"none", "fp8"}:
            assert torch.equal(got[0], want[0])
        else:
            # Rotated keys: steps may differ by one, of which the coarsest are those of int4.
            steps = 15 if kv_format == "int4" else 127
            assert ((got[0] - want[0]).abs() <= 8 / steps).all()
            assert (got[0] - want[0]).abs().mean() < 1e-3
        assert torch.equal(got[1], want[1])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="AVX2 is what x86_64 has")
def test_equals_float64_with_avx2_alone() -> None:
    features = (
        "sse,sse2,sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,fma,f16c,bmi,bmi2,lzcnt,cx16,64bit"
    )
    environment = {
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": ",".join(f"+{feature}" for feature in features.split(",")),
    }
    code = (
        "import torch\n"
        "from tests.attention.test_numba_backend import MIXED, NumbaAttention, make_case\n"
        "from worker.kernels.simd import LANES\n"
        "assert LANES == 8\n"
        "for group in (1, 2, 3, 8):\n"
        "    for head_dim in (64, 80):\n"
        "        case = make_case(\n"
        "            MIXED, kv_format='k8v4', seed=group, head_dim=head_dim, group=group\n"
        "        )\n"
        "        output = case.attend(NumbaAttention()).double()\n"
        "        torch.testing.assert_close(output, case.expected(), atol=2e-6, rtol=2e-5)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | environment)


@given(
    sequences=st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 200)), min_size=1),
    kv_heads=st.integers(1, 4),
    group=st.integers(1, 8),
    threads=st.integers(1, 16),
)
def test_a_plan_covers_each_pair_of_row_and_token_once(
    sequences: list[tuple[int, int]], kv_heads: int, group: int, threads: int
) -> None:
    new, contexts = [n for _, n in sequences], [before + n for before, n in sequences]
    plan = make_plan(new, contexts, kv_heads=kv_heads, group=group, threads=threads)
    assert 1 <= plan.threads <= threads
    ends: dict[tuple[int, int, int, int], int] = {}
    for index, (sequence, head, first, end, start, stop, split, splits) in enumerate(plan.tasks):
        assert 0 < end - first <= kernels.MOST_ROWS
        assert start < stop
        assert start % kernels.TILE == 0
        assert start == ends.get((sequence, head, first, end), 0)
        assert plan.tasks[index - split, 6] == 0
        assert (plan.tasks[index - split : index - split + splits, 7] == splits).all()
        ends[sequence, head, first, end] = stop
    for sequence, (length, context) in enumerate(zip(new, contexts, strict=True)):
        for head in range(kv_heads):
            strips = sorted(key[2:] for key in ends if key[:2] == (sequence, head))
            assert [first for first, _ in strips] == [0, *(end for _, end in strips[:-1])]
            assert strips[-1][1] == length * group
            for first, end in strips:
                last_row_sees = context - length + (end - 1) // group + 1
                assert ends[sequence, head, first, end] == last_row_sees


def test_the_default_is_compiled_only_where_it_is_right() -> None:
    assert isinstance(default_attention(CPU, torch.float32), NumbaAttention)
    assert isinstance(default_attention(CPU, torch.bfloat16), TorchAttention)
    assert isinstance(default_attention(torch.device("meta"), torch.float32), TorchAttention)


def test_without_numba_torch_is_the_default(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "worker.attention.numba_backend", None)
    assert isinstance(default_attention(CPU, torch.float32), TorchAttention)
    assert "computed by torch" in caplog.text
