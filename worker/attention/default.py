"""The backend for a device and dtype: the fastest there is."""

import logging

import torch

from worker.attention.base import AttentionBackend
from worker.attention.torch_backend import TorchAttention

_log = logging.getLogger(__name__)


def default_attention(device: torch.device, dtype: torch.dtype) -> AttentionBackend:
    """`numba` for float32 on a CPU, where it can be imported; else `torch`."""
    if device.type != "cpu" or dtype != torch.float32:
        return TorchAttention()
    try:
        from worker.attention.numba_backend import NumbaAttention
    except ImportError as error:
        _log.warning("attention is computed by torch, which is slower: %s", error)
        return TorchAttention()
    return NumbaAttention()
