"""Which unlocked leaf goes first when blocks are needed.

A policy puts leaves into classes. Within a class the leaf that was left longest ago goes first;
between classes the policy compares these. So choosing looks at one leaf of each class, however
many there are.
"""

from typing import Protocol

from worker.kv.node import Node


class Policy(Protocol):
    """Args: `classes`, how many there are."""

    classes: int

    def class_of(self, leaf: Node) -> int:
        """The class of a leaf that may go from now on, in [0, classes)."""

    def worth(self, leaf: Node, tick: int) -> float:
        """What a block of it is worth keeping at `tick`; the lowest goes.

        In a class it must not be lower for the leaf that was left later.
        """

    def returned(self, leaf: Node) -> None:
        """A sequence has come back to it; its hits do not count that yet."""

    def evicted(self, leaf: Node) -> None:
        """It has gone, as a whole or in part."""


class LeastRecentlyUsed:
    """What was left longest ago goes first."""

    classes = 1

    def class_of(self, leaf: Node) -> int:  # noqa: ARG002
        """All are alike."""
        return 0

    def worth(self, leaf: Node, tick: int) -> float:  # noqa: ARG002
        """When it was left."""
        return leaf.left

    def returned(self, leaf: Node) -> None:
        """Nothing to learn."""

    def evicted(self, leaf: Node) -> None:
        """Nothing to learn."""
