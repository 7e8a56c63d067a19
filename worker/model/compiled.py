"""Models of the Llama kind on a CPU: all layers of a step are one call of compiled code.

Llama, Mistral, Qwen2, Qwen3, SmolLM and others are of that kind. It is not read from a name: a
model has the parts, and then `worker.model.proof` must find the same logits as before.
"""

from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from worker.attention.base import PagedBatch
from worker.attention.numba_backend import make_plan, memory_of
from worker.kernels import cache
from worker.kernels.attention import MOST_ROWS, Step
from worker.kernels.decoder import Layers, Rows, Team, decode
from worker.kernels.memory import Memory
from worker.kernels.panels import Linear, gated, gated_outputs
from worker.kernels.product import multiply
from worker.kernels.team import together
from worker.kv.format import LayerKV
from worker.model.packed import packed
from worker.model.paged import ModelSpec

_LINEARS = ("project", "output", "gate", "down")

_Floats = NDArray[np.float32]
_Ints = NDArray[np.int64]


class OtherKindError(Exception):
    """A model is not of the Llama kind; the message says why."""


class _Run(NamedTuple):
    """Layers from `first` to `last` whose KV is of one format; see `decoder.decode`."""

    first: int
    last: int
    keys: Memory
    values: Memory
    places: tuple[_Ints, _Ints]


class CompiledModel:
    """A `PagedModel` in float32 on a CPU, with as many threads as torch has.

    Args:
        model: of transformers, in float32 on a CPU. Its weights are taken out of it, layer after
            layer, so that they are in memory once; it is of no use afterwards.
        spec: of it.

    Raises:
        OtherKindError: `model` is not of the Llama kind.
    """

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, model: Any, spec: ModelSpec) -> None:
        cache.keep(decode, multiply)
        self.spec = spec
        try:
            self._embedding, self._rotary = model.model.embed_tokens, model.model.rotary_emb
            self._norm, self._head = model.model.norm, packed(model.lm_head)
            if model.lm_head.weight is self._embedding.weight:
                self._embedding = self._head.row
                model.lm_head = model.model.embed_tokens = None
            self._layers = _take_layers(model.model.layers, spec)
            _require_whole_rotation(self._rotary, spec.head_dim)
        except (AttributeError, TypeError, ValueError) as error:
            raise OtherKindError(str(error)) from error
        self._laid: tuple[list[LayerKV], list[_Run]] | None = None

    @property
    def weight_bytes(self) -> int:
        """Bytes that the weights take in memory, but for the norms."""
        layers: int = sum(getattr(self._layers, name).nbytes for name in _LINEARS)
        embedding = self._embedding
        own = embedding.weight.nbytes if isinstance(embedding, nn.Embedding) else 0
        return layers + self._head.nbytes + own

    def round_weights(self) -> None:
        """Keep the weights of linear layers in int8 from now on, see `Linear.rounded`.

        Those of an embedding, too, when it is tied to the output layer.
        """
        for name in _LINEARS:
            rounded = getattr(self._layers, name).rounded()
            self._layers = self._layers._replace(**{name: rounded})
        self._head.round_weights()

    def warm_up(self, kv: list[LayerKV]) -> None:
        """See `PagedModel.warm_up`."""
        nothing = torch.zeros(0, dtype=torch.int64)
        self.forward(
            PagedBatch(nothing, nothing, nothing, nothing[None], nothing[:1], nothing, nothing), kv
        )

    @torch.inference_mode()
    def forward(self, batch: PagedBatch, kv: list[LayerKV]) -> Tensor:
        """See `PagedModel.forward`."""
        embedded: Tensor = self._embedding(batch.token_ids)
        cosines, sines = self._rotary(embedded[None], batch.positions[None])
        threads = torch.get_num_threads()
        rows = Rows.of(
            embedded.numpy(), cosines[0].numpy(), sines[0].numpy(), self._layers, threads
        )
        step, tasks = self._attention(batch, rows.attended, threads)
        parts = np.empty((len(tasks), MOST_ROWS, self.spec.head_dim + 2), np.float32)
        fixed = rows, step, batch.slots.numpy(), tasks, parts
        for first, last, *memory in self._runs(kv):
            team = Team.of(last - first)
            together(threads, decode, self._layers, first, last, *fixed, *memory, team)
        hidden = torch.from_numpy(rows.hidden)[batch.sample_rows, : embedded.shape[1]]
        logits: Tensor = self._head(self._norm(hidden))
        return logits

    def _attention(
        self, batch: PagedBatch, attended: _Floats, threads: int
    ) -> tuple[Step, NDArray[np.int64]]:
        """What attention is told of a step whose output goes into `attended`; and its tasks."""
        spec, tokens = self.spec, len(batch.token_ids)
        by_head = tokens, spec.kv_heads, spec.heads // spec.kv_heads, spec.head_dim
        step = Step(
            queries=np.empty(by_head, np.float32),
            output=attended[:tokens].reshape(by_head),
            block_tables=batch.block_tables.numpy(),
            query_starts=batch.query_starts.numpy(),
            context_lengths=batch.context_lengths.numpy(),
        )
        plan = make_plan(
            batch.query_starts.diff().tolist(),
            batch.context_lengths.tolist(),
            kv_heads=spec.kv_heads,
            group=by_head[2],
            threads=threads,
        )
        return step, plan.tasks

    def _runs(self, kv: list[LayerKV]) -> list[_Run]:
        """The layers by the format of their KV, worked out once for a memory."""
        if self._laid is None or self._laid[0] is not kv:
            self._laid = kv, _runs(kv)
        return self._laid[1]


def _runs(kv: list[LayerKV]) -> list[_Run]:
    def kinds(layer: int) -> tuple[type, type]:
        return type(kv[layer].keys), type(kv[layer].values)

    runs = []
    for _, group in groupby(range(len(kv)), kinds):
        layers = list(group)
        keys, values = ([memory_of(kv[layer][side]) for layer in layers] for side in (0, 1))
        places = _addresses(keys), _addresses(values)
        runs.append(_Run(layers[0], layers[-1] + 1, keys[0], values[0], places))
    return runs


def _addresses(memories: list[Memory]) -> _Ints:
    return np.array(
        [
            [array.ctypes.data for array in memory if isinstance(array, np.ndarray)]
            for memory in memories
        ],
        np.int64,
    )


def _require_whole_rotation(rotary: Any, head_dim: int) -> None:
    cosines, _ = rotary(torch.zeros(1, 1, 1), torch.zeros(1, 1, dtype=torch.int64))
    if cosines.shape[-1] != head_dim:
        raise ValueError(f"it turns {cosines.shape[-1]} of {head_dim} elements of a head")


def _take_layers(layers: nn.ModuleList, spec: ModelSpec) -> Layers:
    """The weights of decoder layers, each let go of as soon as they are taken."""
    first: Any = layers[0]
    hidden, inner = first.self_attn.q_proj.in_features, first.mlp.gate_proj.out_features
    queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    normed = hasattr(first.self_attn, "q_norm")
    norms = (len(layers), spec.head_dim if normed else 0)
    taken = Layers(
        project=Linear.zeros(len(layers), queries + 2 * keys, hidden),
        output=Linear.zeros(len(layers), hidden, queries),
        gate=Linear.zeros(len(layers), gated_outputs(inner), hidden),
        down=Linear.zeros(len(layers), hidden, inner),
        query_norms=np.ones(norms, np.float32),
        key_norms=np.ones(norms, np.float32),
        epsilon=first.input_layernorm.variance_epsilon,
        scale=first.self_attn.scaling,
    )
    for index in range(len(layers)):
        layer: Any = layers[index]
        attention, mlp = layer.self_attn, layer.mlp
        projections = [attention.q_proj, attention.k_proj, attention.v_proj]
        taken.project.put(index, *_together(projections, layer.input_layernorm))
        taken.output.put(index, *_together([attention.o_proj]))
        gate, up = (
            _together([half], layer.post_attention_layernorm)
            for half in (mlp.gate_proj, mlp.up_proj)
        )
        taken.gate.put(index, *map(gated, gate, up))
        taken.down.put(index, *_together([mlp.down_proj]))
        if normed:
            taken.query_norms[index] = attention.q_norm.weight.detach().numpy()
            taken.key_norms[index] = attention.k_norm.weight.detach().numpy()
        layers[index] = nn.Identity()
    return taken


def _together(linears: list[Any], norm: Any = None) -> tuple[_Floats, _Floats]:
    """The weights [outputs, inputs] and biases [outputs] of layers side by side, after a norm."""
    weight = torch.cat([each.weight.detach() for each in linears])
    if norm is not None:
        weight = weight * norm.weight.detach()
    biases = [
        torch.zeros(each.out_features) if each.bias is None else each.bias.detach()
        for each in linears
    ]
    return weight.numpy(), torch.cat(biases).numpy()
