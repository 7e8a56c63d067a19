"""A node of the radix tree: an edge of whole blocks, and what hangs below it."""

from collections.abc import Iterator

from radixgate.namespace import NamespaceSeed
from radixgate.prefix import PrefixHash


class Node:
    """Plain state; `RadixTree` keeps it consistent.

    Attributes:
        parent: None for a root, and for a node that has left the tree.
        edge: packed tokens of `blocks`.
        hashes: of the boundaries that end inside `blocks`, shortest prefix first.
        start: blocks from the root to this node's first block.
        locks: sequences that hold this node or one below it.
        left: tick of the last unlock here or below.
        queued: has its entry in the eviction queue.
    """

    __slots__ = (
        "blocks",
        "children",
        "edge",
        "hashes",
        "left",
        "locks",
        "parent",
        "queued",
        "seed",
        "start",
    )

    def __init__(
        self,
        seed: NamespaceSeed,
        parent: "Node | None" = None,
        *,
        start: int = 0,
        edge: bytes = b"",
        blocks: list[int] | None = None,
        hashes: list[PrefixHash] | None = None,
    ) -> None:
        self.seed = seed
        self.parent = parent
        self.start = start
        self.edge = edge
        self.blocks = blocks or []
        self.hashes = hashes or []
        self.children: dict[bytes, Node] = {}
        self.locks = 0
        self.left = 0
        self.queued = False

    @property
    def end(self) -> int:
        """Blocks from the root to the end of this node."""
        return self.start + len(self.blocks)

    def path(self) -> "Iterator[Node]":
        """The node itself, then its ancestors up to the root."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def below(self) -> "Iterator[Node]":
        """All nodes under this one, parents before their children."""
        stack = list(self.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())
