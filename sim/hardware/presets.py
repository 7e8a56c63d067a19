"""Workers by name: what a data sheet, a model's shape and a KV format say of memory and speed.

A preset is a roofline, not a measurement: the work of a step over what the GPU does of it a second.
docs/hardware.md holds it against published measurements. Each number has its source here.

    prompt_token   2 operations for each parameter that a token meets, and its all-reduces
    pair           4 operations for each layer and element of the query heads
    step           reading those parameters once, and what every step costs whatever it computes
    context_token  reading the KV of a token
    generation     what a sequence costs a step beside that: its products hide behind the reading
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import torch

from sim.hardware.setup import WorkerSetup
from sim.hardware.step_time import StepTime
from worker.kv.format import KVShape, by_name
from worker.plan import Memory

_BLOCK_SIZE: Final = 16


class _Gpu(NamedTuple):
    """Of the maker's data sheet; without sparsity, in units of one.

    Args:
        operations: of bfloat16 a second.
        bandwidth: bytes that the memory moves a second.
        memory: bytes.
    """

    operations: float
    bandwidth: float
    memory: int


# NVIDIA H100 and H200 Tensor Core GPU data sheets, columns SXM. They give 1,979 teraFLOPS of
# BFLOAT16 with sparsity, which is twice what dense products reach.
_H100: Final = _Gpu(operations=989.4e12, bandwidth=3.35e12, memory=80 * 10**9)
_H200: Final = _Gpu(operations=989.4e12, bandwidth=4.8e12, memory=141 * 10**9)

# Bytes a second and direction between two of them: half of the 900 GB/s of the same data sheets.
_NVLINK: Final = 450e9


class _Model(NamedTuple):
    """Args:
    parameters: all of them.
    embedded: those of the embedding, of which a token reads one row.
    layers, heads, kv_heads, head_dim: as its config.json says.
    """

    parameters: int
    embedded: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int


# The config.json of meta-llama/Llama-3.1-8B and -70B; parameters are the sizes of the tensors in
# their model.safetensors.index.json, which are bfloat16, halved. Vocabulary: 128,256.
_LLAMA_8B: Final = _Model(8_030_261_248, 128_256 * 4096, 32, 32, 8, 128)
_LLAMA_70B: Final = _Model(70_553_706_496, 128_256 * 8192, 80, 64, 8, 128)

_DTYPE: Final = torch.bfloat16


class _Weights(NamedTuple):
    """Args: `element`, bytes of one; `speed`, how many times as fast as in bfloat16 products are.

    The data sheets give fp8 twice the operations. Attention stays in bfloat16.
    """

    element: int
    speed: float


_BF16: Final = _Weights(2, 1.0)
_FP8: Final = _Weights(1, 2.0)

# Of the data sheet's peak. Products: what makes the TTFT of 5,000 tokens that NVIDIA published for
# a 70B in fp8 on 2 H100, 407 ms, when the rest of the formula is taken off it. Attention: 590 to
# 621 teraFLOPS, causal, head size 128, contexts of 4k to 16k (FlashAttention-3 on an H100, as
# pytorch/benchmark #2391 has it).
_PRODUCT_EFFICIENCY: Final = 0.55
_ATTENTION_EFFICIENCY: Final = 0.6

# Whole steps; a copy alone moved 0.89 of the data sheet on our H200, see docs/performance.md.
_READ_EFFICIENCY: Final = 0.75
_LINK_EFFICIENCY: Final = 0.7

# Launching, scheduling and answering, a step and a sequence; the latency of one all-reduce of a few
# tokens, of which a layer has two. With these the published ITLs come out as docs/hardware.md says.
_STEP_SECONDS: Final = 2e-3
_SEQUENCE_SECONDS: Final = 10e-6
_ALL_REDUCE_SECONDS: Final = 10e-6

# Bytes of KV a second, for 64 sequences of 8,192 tokens with the heads of the 8B: measured by
# `python -m bench.gpu` on an H200 (docs/performance.md: part of a copy's 4.29 TB/s). What these
# formats take is converting, not reading, so that it is the same on an H100.
_CONVERSION: Final = {
    "none": float("inf"),
    "fp8": 0.45 * 4.29e12,
    "int8": 0.54 * 4.29e12,
    "int4": 0.19 * 4.29e12,
    "k8v4": 0.31 * 4.29e12,
}


@dataclass(frozen=True, slots=True)
class _Preset:
    """A model on so many GPUs, split evenly between them."""

    gpu: _Gpu
    gpus: int
    model: _Model
    weights: _Weights = _BF16

    def setup(self, name: str, kv_format: str) -> WorkerSetup:
        """The worker, by that name."""
        model = self.model
        shape = KVShape(model.layers, model.kv_heads, model.head_dim, _BLOCK_SIZE)
        layout = by_name(kv_format)
        total = self.gpus * self.gpu.memory
        # NOTE: a tenth is what `radixgate plan` keeps in reserve.
        memory = Memory(total, model.parameters * self.weights.element, reserve=total // 10)
        num_blocks = layout.blocks_in(memory.kv, shape, _DTYPE)
        kv_token = layout.bytes_per_block(shape, _DTYPE) / _BLOCK_SIZE
        step_time = self._step_time(kv_token, _CONVERSION[kv_format])
        return WorkerSetup(f"{name}, KV {kv_format}", num_blocks, step_time, gpus=self.gpus)

    def _step_time(self, kv_token: float, conversion: float) -> StepTime:
        """Args: bytes of KV that a token has, and how many of them are converted a second."""
        model, gpus, weights = self.model, self.gpus, self.weights
        met = model.parameters - model.embedded
        # NOTE: logits, for which there are as many parameters as embedded, are of one token alone.
        inner = met - model.embedded
        hidden = model.heads * model.head_dim
        operations = gpus * self.gpu.operations
        read = self.gpu.bandwidth * _READ_EFFICIENCY
        reduces = 2 * model.layers if gpus > 1 else 0
        # NOTE: in a ring, each of n GPUs sends every byte 2 (n - 1) / n times.
        sent = reduces * hidden * _DTYPE.itemsize * 2 * (gpus - 1) / gpus
        return StepTime(
            step=met * weights.element / gpus / read
            + reduces * _ALL_REDUCE_SECONDS
            + _STEP_SECONDS,
            prompt_token=2 * inner / (operations * weights.speed * _PRODUCT_EFFICIENCY)
            + sent / (_NVLINK * _LINK_EFFICIENCY),
            pair=4 * model.layers * hidden / (operations * _ATTENTION_EFFICIENCY),
            generation=_SEQUENCE_SECONDS,
            context_token=kv_token / gpus / min(read, conversion),
        )


_PRESETS: Final = {
    "h100-llama-8b": _Preset(_H100, 1, _LLAMA_8B),
    "h100x2-llama-70b-fp8": _Preset(_H100, 2, _LLAMA_70B, _FP8),
    "h100x4-llama-70b": _Preset(_H100, 4, _LLAMA_70B),
    "h200-llama-8b": _Preset(_H200, 1, _LLAMA_8B),
    "h200x2-llama-70b": _Preset(_H200, 2, _LLAMA_70B),
    "h200x4-llama-70b": _Preset(_H200, 4, _LLAMA_70B),
}


def preset_names() -> tuple[str, ...]:
    """What `preset` knows."""
    return tuple(_PRESETS)


def preset(name: str, kv_format: str = "none") -> WorkerSetup:
    """The worker that `name` says, with its KV in `kv_format`.

    Raises:
        ValueError: there is no such preset, or it has no speed for that format.
    """
    if name not in _PRESETS:
        raise ValueError(f"hardware {name!r} is unknown; there are: {', '.join(_PRESETS)}")
    if kv_format not in _CONVERSION:
        raise ValueError(
            f"hardware {name!r} has no speed for KV format {kv_format!r}; "
            f"it has for: {', '.join(_CONVERSION)}"
        )
    return _PRESETS[name].setup(name, kv_format)
