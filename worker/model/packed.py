"""Linear layers whose weights lie in memory as oneDNN reads them: in panels of output columns.

A product with a few rows then reads each weight once, one after the other, and one with many rows
needs no copy of them. What follows a product element by element is done on the way out.
"""

import torch
from torch import Tensor, nn

# Rows that the layout is chosen for. oneDNN keeps weights unpacked for one row, and picks the same
# panels for any more, which serve one row as well.
_ROWS = 256


class PackedLinear(nn.Module):
    """x @ weight.T + bias for float32 on a CPU.

    Args:
        weight: [outputs, inputs]; copied, so the caller's can go.
        bias: [outputs], or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS)
        self._bias = None if bias is None else bias.detach()

    def forward(self, rows: Tensor) -> Tensor:
        """[..., inputs] to [..., outputs]."""
        return self._after(rows, "none")

    def silu(self, rows: Tensor) -> Tensor:
        """The SiLU of what `forward` gives."""
        return self._after(rows, "swish")

    def times(self, rows: Tensor, other: Tensor) -> Tensor:
        """What `forward` gives, times `other` of that shape."""
        return self._with(rows, other, "mul")

    def plus(self, rows: Tensor, other: Tensor) -> Tensor:
        """What `forward` gives, plus `other` of that shape."""
        return self._with(rows, other, "add")

    def _after(self, rows: Tensor, function: str) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            rows, self._weight, self._bias, function, [], ""
        )
        return result

    def _with(self, rows: Tensor, other: Tensor, operation: str) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            rows, other, self._weight, self._bias, operation
        )
        return result


def pack(linear: nn.Linear) -> PackedLinear:
    """The same layer, packed."""
    return PackedLinear(linear.weight, linear.bias)


def pack_together(*linears: nn.Linear) -> PackedLinear:
    """One layer whose outputs are those of all `linears`, one after the other."""
    weights: list[Tensor] = [linear.weight for linear in linears]
    biases: list[Tensor] = [linear.bias for linear in linears if linear.bias is not None]
    if len(biases) not in (0, len(linears)):
        raise ValueError("some of the layers have a bias and some have none")
    return PackedLinear(torch.cat(weights), torch.cat(biases) if biases else None)
