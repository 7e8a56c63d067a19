"""An orthonormal rotation that spreads what stands out in a row over all of its elements.

Dot products stay what they are when both sides are rotated.
"""

import torch
from torch import Tensor


def hadamard(head_dim: int, device: torch.device) -> Tensor:
    """The Hadamard matrix [size, size] float32, orthonormal and symmetric.

    `size` is the largest power of two that divides `head_dim`: 64 of 64, 16 of 80, 32 of 96.
    """
    matrix = torch.ones(1, 1, device=device)
    for _ in range((head_dim & -head_dim).bit_length() - 1):
        matrix = torch.cat(
            (torch.cat((matrix, matrix), dim=1), torch.cat((matrix, -matrix), dim=1))
        )
    orthonormal: Tensor = matrix / len(matrix) ** 0.5
    return orthonormal


def rotated(rows: Tensor, rotation: Tensor) -> Tensor:
    """`rows` [..., head_dim] with each run of `len(rotation)` elements rotated; dtype as it was."""
    runs = torch.unflatten(rows.float(), -1, (-1, len(rotation)))
    return (runs @ rotation).flatten(-2).to(rows.dtype)
