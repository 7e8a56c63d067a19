"""A node of the radix tree: an edge of whole blocks, who holds it, and what hangs below it."""

from array import array
from collections.abc import Iterator
from enum import IntEnum
from math import exp2
from typing import TYPE_CHECKING, Final

from radixgate.namespace import NamespaceSeed
from radixgate.prefix import PrefixHash

if TYPE_CHECKING:
    from worker.kv.account import Account
    from worker.kv.queue import LeafQueue

HEAT_HALF_LIFE: Final = 512
"""Requests until a hit counts half."""


class Hold(IntEnum):
    """Why a block must stay; of several reasons the first one names its state."""

    RUNNING = 0
    PINNED = 1
    WAITING = 2


class Node:
    """Plain state; `RadixTree` keeps it consistent.

    Attributes:
        parent: None for a root, and for a node that has left the tree.
        account: whose memory its blocks are.
        edge: packed tokens of `blocks`.
        hashes: of the boundaries that end inside `blocks`, shortest prefix first.
        start: blocks from the root to this node's first block.
        children: by the packed tokens of their first block; `firsts` has these sorted.
        holds: for each `Hold`, how many hold this node or one below it.
        left: tick of the last unlock by a sequence, here or below.
        heat: requests that found it cached, each worth less with every request since, as of request
            number `heated`; 0 when none has.
        trimmed: whether blocks were ever evicted from its end.
        queue: where it waits to be evicted, as the entry number `entry`; None while it must stay.
    """

    __slots__ = (
        "account",
        "blocks",
        "children",
        "edge",
        "entry",
        "firsts",
        "hashes",
        "heat",
        "heated",
        "holds",
        "left",
        "parent",
        "queue",
        "seed",
        "start",
        "trimmed",
    )

    def __init__(
        self,
        seed: NamespaceSeed,
        account: "Account",
        parent: "Node | None" = None,
        *,
        start: int = 0,
        edge: bytes | memoryview = b"",
        blocks: "array[int] | None" = None,
        hashes: list[PrefixHash] | None = None,
    ) -> None:
        self.seed = seed
        self.account = account
        self.parent = parent
        self.start = start
        self.edge = bytearray(edge)
        self.blocks = array("q") if blocks is None else blocks
        self.hashes = hashes or []
        self.children: dict[bytes, Node] = {}
        self.firsts: list[bytes] = []
        self.holds = [0] * len(Hold)
        self.left = 0
        self.heat = 0.0
        self.heated = 0
        self.trimmed = False
        self.queue: LeafQueue | None = None
        self.entry = 0

    @property
    def end(self) -> int:
        """Blocks from the root to the end of this node."""
        return self.start + len(self.blocks)

    @property
    def hold(self) -> Hold | None:
        """The first reason to stay; None when it may go."""
        running, pinned, waiting = self.holds
        if running:
            return Hold.RUNNING
        if pinned:
            return Hold.PINNED
        return Hold.WAITING if waiting else None

    @property
    def evictable(self) -> bool:
        """Whether its blocks may go now, from the last one on."""
        return self.parent is not None and not self.children and not any(self.holds)

    def heat_at(self, request: int) -> float:
        """Its heat at the `request` of that number, which is not before the last hit."""
        return self.heat * exp2((self.heated - request) / HEAT_HALF_LIFE)

    def hit(self, request: int) -> None:
        """The `request` of that number found it cached."""
        self.heat, self.heated = self.heat_at(request) + 1, request

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
