"""Linear layers over weights in panels, for models that are not compiled as a whole."""

import numpy as np
import torch
from torch import Tensor, nn

from worker.kernels.cache import keep
from worker.kernels.panels import Linear
from worker.kernels.product import PLAIN, multiply, whole
from worker.kernels.team import together


class PackedLinear(nn.Module):
    """x @ weight.T + bias for float32 on a CPU, with as many threads as torch has.

    Args:
        linear: panels of one layer.
        outputs: of it.
    """

    def __init__(self, linear: Linear, outputs: int) -> None:
        super().__init__()
        self._linear, self._outputs = linear, outputs

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in memory."""
        return self._linear.nbytes

    def round_weights(self) -> None:
        """Keep the weights in int8 from now on, see `Linear.rounded`."""
        self._linear = self._linear.rounded()

    def row(self, outputs: Tensor) -> Tensor:
        """The weights of some `outputs`, [outputs, inputs]: for an embedding tied to this."""
        return torch.from_numpy(self._linear.rows(0, outputs.numpy()))

    def forward(self, rows: Tensor) -> Tensor:
        """[..., inputs] to [..., outputs]."""
        flat = rows.reshape(-1, rows.shape[-1])
        inputs = np.zeros((whole(len(flat)), flat.shape[1]), np.float32)
        inputs[: len(flat)] = flat.numpy()
        outputs = np.empty((len(inputs), self._linear.biases.shape[1]), np.float32)
        factors, taken = np.ones(len(inputs), np.float32), np.zeros(1, np.int64)
        together(
            torch.get_num_threads(),
            multiply,
            self._linear,
            0,
            PLAIN,
            len(flat),
            inputs,
            factors,
            outputs,
            taken,
        )
        result = torch.from_numpy(outputs)[: len(flat), : self._outputs]
        return result.reshape(*rows.shape[:-1], self._outputs)


def packed(linear: nn.Linear) -> PackedLinear:
    """The same layer over panels."""
    outputs, inputs = linear.weight.shape
    panels = Linear.zeros(1, outputs, inputs)
    bias = torch.zeros(outputs) if linear.bias is None else linear.bias.detach()
    panels.put(0, linear.weight.detach().numpy(), bias.numpy())
    return PackedLinear(panels, outputs)


def pack(model: nn.Module) -> None:
    """Exchange the linear layers of `model`, float32 on a CPU, in place.

    A weight that is used elsewhere too, such as the embedding behind a tied output layer, stays
    there.
    """
    keep(multiply)
    for name, layer in list(model.named_modules()):
        if type(layer) is nn.Linear:
            model.set_submodule(name, packed(layer))
