"""Which device and dtype are chosen, on machines of every kind."""

import pytest
import torch

from worker.model.device import CPU, Found, choose_device, choose_dtype, look

PLAIN = Found("2.13.0+cpu", cuda=None, gpus=0, triton=False)
NO_GPU = Found("2.13.0", cuda="13.0", gpus=0, triton=True)
ONE = NO_GPU._replace(gpus=1)
FOUR = NO_GPU._replace(gpus=4)
NO_TRITON = ONE._replace(triton=False)


@pytest.mark.parametrize(
    ("asked", "found", "chosen"),
    [
        ("auto", PLAIN, "cpu"),
        ("auto", NO_GPU, "cpu"),
        ("auto", ONE, "cuda:0"),
        ("auto", FOUR, "cuda:0"),
        ("cpu", PLAIN, "cpu"),
        ("cpu", FOUR, "cpu"),
        ("cpu", NO_TRITON, "cpu"),
        ("cuda", ONE, "cuda:0"),
        ("cuda:0", ONE, "cuda:0"),
        ("cuda:3", FOUR, "cuda:3"),
    ],
)
def test_a_device_that_can_be_had(asked: str, found: Found, chosen: str) -> None:
    assert choose_device(asked, found) == torch.device(chosen)


@pytest.mark.parametrize(
    ("asked", "found", "says"),
    [
        ("cuda", PLAIN, r"'cuda' was asked for, but torch 2.13.0\+cpu is built without CUDA; inst"),
        ("cuda:1", NO_GPU, "'cuda:1' was asked for, but torch 2.13.0 finds none; see nvidia-smi"),
        ("cuda:1", ONE, "'cuda:1' was asked for, but torch finds cuda:0 alone; name one"),
        ("cuda:4", FOUR, "'cuda:4' was asked for, but torch finds cuda:0 to cuda:3; name one"),
        (
            "cuda",
            NO_TRITON,
            r"needs Triton, which is not installed: pip install 'radixgate\[gpu\]'",
        ),
        ("auto", NO_TRITON, "'auto' is a GPU here, whose attention needs Triton.* or take cpu"),
        ("gpu", FOUR, "'gpu' is unknown; there are auto, cpu, cuda and cuda:N"),
        ("cuda:", FOUR, "'cuda:' is unknown"),
        ("cuda:-1", FOUR, "'cuda:-1' is unknown"),
        ("cpu:0", FOUR, "'cpu:0' is unknown"),
        ("", FOUR, "'' is unknown"),
    ],
)
def test_a_device_that_cannot_be_had_says_what_there_is(
    asked: str, found: Found, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        choose_device(asked, found)


def test_what_is_found_here_is_what_torch_can_use() -> None:
    assert (look().gpus > 0) == torch.cuda.is_available()
    assert choose_device("cpu", look()) == CPU


@pytest.mark.parametrize(
    ("device", "stated", "chosen"),
    [
        ("cpu", torch.bfloat16, torch.float32),
        ("cpu", None, torch.float32),
        ("cuda", torch.float32, torch.float32),
        ("cuda", torch.float16, torch.float16),
        ("cuda", torch.bfloat16, torch.bfloat16),
        ("cuda", None, torch.bfloat16),
        ("cuda", torch.float64, torch.bfloat16),
    ],
)
def test_a_cpu_computes_in_float32_and_a_gpu_as_the_config_states(
    device: str, stated: torch.dtype | None, chosen: torch.dtype
) -> None:
    assert choose_dtype(torch.device(device), stated) == chosen
