"""How the weights of linear layers lie in memory: in panels of `WIDTH` outputs, input after input.

A product reads a panel once for several rows, one weight after the other. A few rows then cost what
reading the weights costs, and many what multiplying does; one layout serves both.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from worker.kernels.simd import LANES

WIDTH = 2 * LANES

_LARGEST_STEP = 127

Weights = NDArray[np.float32]


class Linear(NamedTuple):
    """Linear layers of one shape; a product is scale * (row @ panel) + bias.

    Args:
        panels: [layers, panels, inputs, WIDTH] float32 or int8; outputs beyond the last are zeros.
        scales: [layers, panels * WIDTH] float32.
        biases: [layers, panels * WIDTH] float32.
    """

    panels: NDArray[np.float32] | NDArray[np.int8]
    scales: Weights
    biases: Weights

    @classmethod
    def zeros(
        cls, layers: int, outputs: int, inputs: int, dtype: DTypeLike = np.float32
    ) -> "Linear":
        """Layers of which each waits for its `put`; `dtype` is that of the panels."""
        panels = -(-outputs // WIDTH)
        return cls(
            np.zeros((layers, panels, inputs, WIDTH), dtype),
            np.ones((layers, panels * WIDTH), np.float32),
            np.zeros((layers, panels * WIDTH), np.float32),
        )

    def put(self, layer: int, weight: Weights, bias: Weights) -> None:
        """Take the weights [outputs, inputs] and the bias [outputs] of a layer."""
        outputs = len(weight)
        if self.panels.dtype == np.int8:
            scales = np.abs(weight).max(axis=1) / _LARGEST_STEP
            self.scales[layer, :outputs] = scales
            tiny = np.finfo(np.float32).tiny
            weight = np.rint(weight / np.maximum(scales, tiny)[:, None])
        self.biases[layer, :outputs] = bias
        for panel, start in zip(self.panels[layer], range(0, outputs, WIDTH), strict=True):
            some = weight[start : start + WIDTH]
            panel[:, : len(some)] = some.T

    def rows(self, layer: int, outputs: NDArray[np.int64]) -> Weights:
        """The weights of some outputs, [outputs, inputs]."""
        taken: Weights = self.panels[layer][outputs // WIDTH, :, outputs % WIDTH]
        return taken * self.scales[layer, outputs, None]


def gated_outputs(outputs: int) -> int:
    """How many outputs `gated` makes of two layers with `outputs`."""
    return 2 * -(-outputs // LANES) * LANES


def gated(gate: Weights, through: Weights) -> Weights:
    """One layer, or its bias, of two: LANES outputs of `gate`, then as many of `through`, so on."""
    both = np.zeros((gated_outputs(len(gate)) // 2, 2, *gate.shape[1:]), np.float32)
    both[: len(gate), 0], both[: len(gate), 1] = gate, through
    by_lane = both.reshape(-1, LANES, 2, *gate.shape[1:]).swapaxes(1, 2)
    return by_lane.reshape(-1, *gate.shape[1:])
