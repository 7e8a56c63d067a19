"""Which leaf goes first when blocks are needed.

A policy puts leaves into classes. Within a class the leaf that was left longest ago goes first;
between classes the policy compares these. So choosing looks at one leaf of each class, however
many there are, and a leaf that grows old never has to be sorted anew.
"""

from collections.abc import Callable
from typing import Final, Protocol

from worker.kv.node import Node


class Policy(Protocol):
    """Attributes: `classes`, how many there are."""

    classes: int

    def class_of(self, leaf: Node) -> int:
        """The class of a leaf that may go from now on, in [0, classes)."""

    def worth(self, kind: int, age: int) -> float:
        """What keeping a leaf of a class is worth; the lowest goes.

        `age` counts the sequences that ended since the leaf was left; worth falls with it.
        """


class LeastRecentlyUsed:
    """What was left longest ago goes first."""

    classes = 1

    def class_of(self, leaf: Node) -> int:  # noqa: ARG002
        """All are alike."""
        return 0

    def worth(self, kind: int, age: int) -> float:  # noqa: ARG002
        """Less with age, and nothing else."""
        return -age


class CostAware:
    """What recomputing a block would cost, times how likely it is to come back.

    Cost grows with the context that a token attends to: it doubles at `ATTENTION_TOKENS`. It
    counts by its fourth root, since counted in full it keeps few long contexts for many short ones;
    lengths are told apart by powers of two from `FIRST_LENGTH`. The likelihood falls as 1 / age,
    and is `RETURNED` times as high for what has come back before. A leaf goes from its tail, so
    the head of a prefix, that more prompts share, outlives it.

    Args:
        block_size: tokens in a block.
    """

    ATTENTION_TOKENS = 16384
    RETURNED = 2
    FIRST_LENGTH = 1024
    _LENGTHS = 10

    def __init__(self, block_size: int) -> None:
        self.classes = 2 * self._LENGTHS
        self._block_size = block_size
        costs: list[float] = [
            (1 + (self.FIRST_LENGTH << length) / self.ATTENTION_TOKENS) ** 0.25
            for length in range(self._LENGTHS)
        ]
        self._values = costs + [self.RETURNED * cost for cost in costs]

    def class_of(self, leaf: Node) -> int:
        """By the power of two that its length reaches, and by whether it has come back."""
        length = (leaf.end * self._block_size // self.FIRST_LENGTH).bit_length()
        return min(length, self._LENGTHS - 1) + self._LENGTHS * bool(leaf.heat)

    def worth(self, kind: int, age: int) -> float:
        """Cost times likelihood."""
        return self._values[kind] / (age + 1)


POLICIES: Final[dict[str, Callable[[int], Policy]]] = {
    "lru": lambda _: LeastRecentlyUsed(),
    "cost": CostAware,
}
"""By the names that people use; each takes the block size."""

DEFAULT_EVICTION: Final = "cost"
"""Which one a worker has that was not told; docs/kv-policy.md says why."""
