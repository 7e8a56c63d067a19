"""The backend for a device and dtype: the fastest there is."""

import logging

import torch

from worker.attention.base import AttentionBackend
from worker.attention.torch_backend import TorchAttention

_log = logging.getLogger(__name__)


def default_attention(device: torch.device, dtype: torch.dtype) -> AttentionBackend:
    """`triton` on CUDA, `numba` for float32 on a CPU, where it can be imported; else `torch`."""
    try:
        if device.type == "cuda":
            from worker.attention.triton_backend import TritonAttention

            return TritonAttention()
        if device.type == "cpu" and dtype == torch.float32:
            from worker.attention.numba_backend import NumbaAttention

            return NumbaAttention()
    except ImportError as error:
        _log.warning("attention is computed by torch, which is slower: %s", error)
    return TorchAttention()
