"""What a model computes on and in: choices from what was asked for and what this machine has."""

import re
from importlib.util import find_spec
from typing import NamedTuple

import torch

CPU = torch.device("cpu")

_NAMES = re.compile(r"auto|cpu|cuda(?::(\d+))?", re.ASCII)
_HALVES_AND_SINGLE = (torch.float16, torch.bfloat16, torch.float32)


class Found(NamedTuple):
    """What this machine has to compute with.

    Attributes:
        torch: the version of torch.
        cuda: the version of CUDA that it was built for; None: for none.
        gpus: CUDA devices that it can use.
        triton: whether Triton is installed, which attention on a GPU needs.
    """

    torch: str
    cuda: str | None
    gpus: int
    triton: bool


def look() -> Found:
    """What is found here."""
    return Found(
        torch=str(torch.__version__),
        cuda=torch.version.cuda,
        # NOTE: where the driver is broken it counts GPUs that cannot be used.
        gpus=torch.cuda.device_count() if torch.cuda.is_available() else 0,
        triton=find_spec("triton") is not None,
    )


def choose_device(asked: str, found: Found) -> torch.device:
    """The device to compute on.

    Args:
        asked: `cpu`; `cuda`, the first GPU; `cuda:N`, the GPU number N; `auto`, the first GPU if
            there is one, else the CPU.
        found: see there.

    Raises:
        ValueError: `asked` is none of these, or cannot be had.
    """
    name = _NAMES.fullmatch(asked)
    if name is None:
        raise ValueError(f"device {asked!r} is unknown; there are auto, cpu, cuda and cuda:N")
    if asked == "cpu" or (asked == "auto" and not found.gpus):
        return CPU
    number = int(name[1] or 0)
    if number >= found.gpus:
        raise ValueError(f"device {asked!r} was asked for, but {_gpus(found)}, or take cpu")
    if not found.triton:
        raise ValueError(
            f"device {asked!r} is a GPU here, whose attention needs Triton, which is not "
            "installed: pip install 'radixgate[gpu]', or take cpu"
        )
    return torch.device("cuda", number)


def choose_dtype(device: torch.device, stated: torch.dtype | None) -> torch.dtype:
    """What to compute in: float32 on a CPU, else what the model's config states, or bfloat16.

    NOTE: a CPU computes float32 several times faster than the halves.
    """
    if device.type == "cpu":
        return torch.float32
    return stated if stated in _HALVES_AND_SINGLE else torch.bfloat16


def _gpus(found: Found) -> str:
    """Which GPUs torch finds, and what to do for another."""
    if found.cuda is None:
        return f"torch {found.torch} is built without CUDA; install one that is built for it"
    if not found.gpus:
        return f"torch {found.torch} finds none; see nvidia-smi and $CUDA_VISIBLE_DEVICES"
    last = found.gpus - 1
    return f"torch finds {f'cuda:0 to cuda:{last}' if last else 'cuda:0 alone'}; name one of them"
