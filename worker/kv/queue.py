"""Leaves that may be evicted, in the order in which they were left."""

import heapq
from itertools import count

from worker.kv.node import Node


class LeafQueue:
    """A heap by `Node.left`; O(log n) for each operation, memory in proportion to its leaves.

    Attributes:
        first: the leaf that was left longest ago; None when there is none.
    """

    def __init__(self) -> None:
        self.first: Node | None = None
        # An entry is dead once its number is no longer that of its node; it stays until it comes
        # up, or until there are more dead ones than others.
        self._heap: list[tuple[int, int, Node]] = []
        self._numbers = count(1)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, node: Node) -> None:
        """Add a leaf that is in no queue."""
        assert node.queue is None
        node.queue, node.entry = self, next(self._numbers)
        heapq.heappush(self._heap, (node.left, node.entry, node))
        self._size += 1
        self.first = self._heap[0][2]

    def discard(self, node: Node) -> None:
        """Take out a leaf of this queue."""
        assert node.queue is self
        node.queue, node.entry = None, 0
        self._size -= 1
        if len(self._heap) > 2 * self._size:
            self._heap = [entry for entry in self._heap if self._lives(entry)]
            heapq.heapify(self._heap)
        while self._heap and not self._lives(self._heap[0]):
            heapq.heappop(self._heap)
        self.first = self._heap[0][2] if self._heap else None

    def _lives(self, entry: tuple[int, int, Node]) -> bool:
        _, number, node = entry
        return node.queue is self and node.entry == number
