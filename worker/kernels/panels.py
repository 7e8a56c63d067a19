"""How the weights of linear layers lie in memory: in panels of `WIDTH` outputs, input after input.

A product reads a panel once for several rows, one weight after the other. A few rows then cost what
reading the weights costs, and many what multiplying does; one layout serves both.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.kernels.simd import LANES

WIDTH = 2 * LANES

# So many inputs of an output share a scale when they are in int8.
GROUP = 32

_LARGEST_STEP = 127

Weights = NDArray[np.float32]


class Linear(NamedTuple):
    """Linear layers of one shape; a product is row @ (panel * scales) + bias.

    Args:
        panels: [layers, panels, inputs, WIDTH] float32 or int8; outputs beyond the last are zeros.
        scales: [layers, panels, groups, WIDTH] float32, of each output's groups of inputs; those of
            float32 panels are 1, of one group.
        biases: [layers, panels * WIDTH] float32.
        group: inputs of a group; the last one may have fewer.
    """

    panels: NDArray[np.float32] | NDArray[np.int8]
    scales: Weights
    biases: Weights
    group: int

    @classmethod
    def zeros(cls, layers: int, outputs: int, inputs: int) -> "Linear":
        """Layers in float32, of which each waits for its `put`."""
        panels = -(-outputs // WIDTH)
        return cls(
            np.zeros((layers, panels, inputs, WIDTH), np.float32),
            np.ones((layers, panels, 1, WIDTH), np.float32),
            np.zeros((layers, panels * WIDTH), np.float32),
            inputs,
        )

    def put(self, layer: int, weight: Weights, bias: Weights) -> None:
        """Take the weights [outputs, inputs] and the bias [outputs] of a layer in float32."""
        outputs = len(weight)
        self.biases[layer, :outputs] = bias
        for panel, start in zip(self.panels[layer], range(0, outputs, WIDTH), strict=True):
            some = weight[start : start + WIDTH]
            panel[:, : len(some)] = some.T

    def rounded(self) -> "Linear":
        """These layers, float32, in int8: weights are off by at most half of their scale.

        A scale is the largest magnitude of its group over the largest step.
        """
        layers, panels, inputs, _ = self.panels.shape
        starts = np.arange(0, inputs, GROUP)
        steps = np.empty(self.panels.shape, np.int8)
        scales = np.empty((layers, panels, len(starts), WIDTH), np.float32)
        for at in np.ndindex(layers, panels):
            panel = self.panels[at]
            largest = np.maximum.reduceat(np.abs(panel), starts)
            scales[at] = np.maximum(largest / _LARGEST_STEP, np.finfo(np.float32).tiny)
            steps[at] = np.rint(panel / np.repeat(scales[at], GROUP, axis=0)[:inputs])
        return Linear(steps, scales, self.biases, GROUP)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.panels.nbytes + self.scales.nbytes + self.biases.nbytes

    def rows(self, layer: int, outputs: NDArray[np.int64]) -> Weights:
        """The weights of some outputs, [outputs, inputs]."""
        at = outputs // WIDTH, slice(None), outputs % WIDTH
        taken: Weights = self.panels[layer][at]
        scales: Weights = np.repeat(self.scales[layer][at], self.group, axis=1)
        weights: Weights = taken * scales[:, : taken.shape[1]]
        return weights


def gated_outputs(outputs: int) -> int:
    """How many outputs `gated` makes of two layers with `outputs`."""
    return 2 * -(-outputs // LANES) * LANES


def gated(gate: Weights, through: Weights) -> Weights:
    """One layer, or its bias, of two: LANES outputs of `gate`, then as many of `through`, so on."""
    both = np.zeros((gated_outputs(len(gate)) // 2, 2, *gate.shape[1:]), np.float32)
    both[: len(gate), 0], both[: len(gate), 1] = gate, through
    by_lane = both.reshape(-1, LANES, 2, *gate.shape[1:]).swapaxes(1, 2)
    return by_lane.reshape(-1, *gate.shape[1:])
