"""The radix tree: which prefixes are cached, in which blocks, and which of them may go.

One root per namespace. An edge is a run of whole blocks of tokens, so a path from a root names a
prefix and the blocks that hold its KV. Tokens are compared, never hashes. Locks count the sequences
on a node or below it: what is locked stays. What is unlocked can all be evicted, leaf by leaf, from
its tail, that which was left longest ago first.
"""

import heapq
from bisect import bisect_left
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from radixgate.namespace import NamespaceSeed
from radixgate.prefix import TOKEN_BYTES, PrefixHash

from worker.kv.node import Node
from worker.kv.tokens import Tokens


class Match(NamedTuple):
    """The longest cached prefix of some tokens, valid until the tree changes.

    Attributes:
        node: the last node of the path, None when nothing of the namespace is there.
        taken: blocks of `node` that belong to the prefix.
        blocks: all blocks of the prefix.
        evictable: how many of them no sequence holds.
    """

    node: Node | None
    taken: int
    blocks: list[int]
    evictable: int


class Extension(NamedTuple):
    """Where a sequence is after `extend`.

    Attributes:
        node: what it holds now.
        blocks: the tree's, for the tokens it extended by.
        stored: the boundaries that are new in the tree.
    """

    node: Node
    blocks: list[int]
    stored: list[PrefixHash]


class Evicted(NamedTuple):
    """Blocks that left the tree, and the boundaries that left with them."""

    blocks: list[int]
    hashes: list[PrefixHash]


class RadixTree:
    """Args: `block_size` tokens in a block; `stride` tokens between boundaries, whole blocks."""

    def __init__(self, block_size: int, stride: int) -> None:
        if stride % block_size:
            raise ValueError(f"stride {stride} is not a multiple of block size {block_size}")
        self.num_blocks = 0
        self._num_locked = 0
        self._block_bytes = block_size * TOKEN_BYTES
        self._boundary_blocks = stride // block_size
        self._roots: dict[NamespaceSeed, Node] = {}
        # One entry for each unlocked leaf, and for some that no longer are: (left, order, node),
        # `left` as it was when queued. It only grows, so an old entry comes up early, never late.
        self._queue: list[tuple[int, int, Node]] = []
        self._order = count()
        self._tick = 0

    @property
    def num_evictable(self) -> int:
        """Blocks that `evict` can free now."""
        return self.num_blocks - self._num_locked

    def match(self, tokens: Tokens) -> Match:
        """The longest cached prefix of whole blocks of `tokens`. Changes nothing."""
        node = self._roots.get(tokens.seed)
        if node is None:
            return Match(None, 0, [], 0)
        limit = len(tokens.packed) // self._block_bytes
        taken, blocks, evictable = 0, [], 0
        while taken == len(node.blocks) and (step := self._descend(node, tokens, limit)):
            node, taken = step
            blocks += node.blocks[:taken]
            evictable += 0 if node.locks else taken
        return Match(node, taken, blocks, evictable)

    def lock(self, seed: NamespaceSeed, match: Match) -> Node:
        """Hold the blocks of a match just made until `unlock` of the returned node."""
        node = match.node or self._roots.setdefault(seed, Node(seed))
        if match.taken < len(node.blocks):
            node = self._split(node, match.taken)
        for held in node.path():
            self._hold(held)
        return node

    def unlock(self, node: Node) -> None:
        """The sequence that holds `node` leaves; it may be evicted when no other holds it."""
        self._tick += 1
        for held in node.path():
            held.locks -= 1
            held.left = self._tick
            if not held.locks:
                self._num_locked -= len(held.blocks)
        self._now_unused(node)

    def extend(self, node: Node, tokens: Tokens, blocks: list[int]) -> Extension:
        """Insert what a sequence has computed, and move its lock to the end of that.

        Args:
            node: what the sequence holds, a prefix of `tokens`.
            tokens: of the sequence.
            blocks: the sequence's own, for the tokens from `node` on.

        Returns:
            The tree's blocks are the sequence's own, which the tree now owns, save where the tree
            already had others for the same tokens.
        """
        limit = node.end + len(blocks)
        held: list[int] = []
        while step := self._descend(node, tokens, limit):
            child, taken = step
            node = child if taken == len(child.blocks) else self._split(child, taken)
            self._hold(node)
            held += node.blocks
        new = blocks[len(held) :]
        if not new:
            return Extension(node, held, [])
        stored = tokens.hashes[node.end // self._boundary_blocks : limit // self._boundary_blocks]
        edge = self._bytes(tokens, node.end, limit)
        self.num_blocks += len(new)
        if node.parent and node.locks == 1 and not node.children:
            # NOTE: only this sequence holds the leaf, so it grows in place: one node a sequence.
            node.edge += edge
            node.blocks += new
            node.hashes += stored
            self._num_locked += len(new)
        else:
            leaf = Node(node.seed, node, start=node.end, edge=edge, blocks=new, hashes=stored)
            node.children[self._first(edge)] = leaf
            self._hold(leaf)
            node = leaf
        return Extension(node, held + new, list(stored))

    def evict(self, wanted: int) -> Evicted:
        """Take `wanted` unlocked blocks out of the tree; no more than `num_evictable`."""
        assert wanted <= self.num_evictable, f"{wanted} blocks of {self.num_evictable} evictable"
        gone = Evicted([], [])
        while (missing := wanted - len(gone.blocks)) > 0:
            left, _, node = heapq.heappop(self._queue)
            node.queued = False
            if left == node.left and self._evictable(node):
                self._trim(node, max(0, len(node.blocks) - missing), gone)
            self._now_unused(node)
        return gone

    def clear(self) -> Evicted:
        """Take out all unlocked blocks; what sequences hold stays."""
        gone = Evicted([], [])
        roots = list(self._roots.values())
        unlocked = [node for root in roots for node in root.below() if not node.locks]
        for node in reversed(unlocked):
            self._trim(node, 0, gone)
        self._queue = [entry for entry in self._queue if entry[2].parent]
        heapq.heapify(self._queue)
        return gone

    def blocks(self) -> Iterator[int]:
        """The ids of all cached blocks."""
        for root in self._roots.values():
            for node in root.below():
                yield from node.blocks

    def check_integrity(self) -> None:
        """Raises AssertionError when counts, locks, edges or the eviction queue are wrong."""
        nodes = [node for root in self._roots.values() for node in (root, *root.below())]
        assert self.num_blocks == sum(len(node.blocks) for node in nodes)
        assert self._num_locked == sum(len(node.blocks) for node in nodes if node.locks)
        queued = [entry[2] for entry in self._queue]
        assert len(set(queued)) == len(queued), "a node is queued twice"
        assert all(node.queued and node.parent for node in queued)
        for node in nodes:
            assert len(node.edge) == len(node.blocks) * self._block_bytes
            assert node.locks >= sum(child.locks for child in node.children.values()) >= 0
            assert node.queued or not self._evictable(node), "an unlocked leaf is not queued"
            assert len(node.hashes) == self._boundaries(node.start, node.end)
            assert node.blocks or (node.parent is None and (node.locks or node.children))
            for first, child in node.children.items():
                assert child.parent is node
                assert child.start == node.end
                assert self._first(child.edge) == first
                assert child.left <= node.left

    def _descend(self, node: Node, tokens: Tokens, limit: int) -> tuple[Node, int] | None:
        """The child that goes on with `tokens` after `node`, and how many of its blocks agree.

        `limit` is the number of blocks of `tokens` that count.
        """
        if node.end >= limit:
            return None
        child = node.children.get(self._bytes(tokens, node.end, node.end + 1))
        if child is None:
            return None
        most = min(len(child.blocks), limit - child.start)
        offset = child.start * self._block_bytes

        def differs(blocks: int) -> bool:
            return not tokens.packed.startswith(child.edge[: blocks * self._block_bytes], offset)

        return child, most if not differs(most) else bisect_left(range(most), True, key=differs) - 1

    def _split(self, node: Node, taken: int) -> Node:
        """Cut `node` after `taken` of its blocks; returns the new upper part.

        NOTE: `node` stays the lower part, so that a sequence that holds it holds both.
        """
        assert node.parent
        cut = taken * self._block_bytes
        boundaries = self._boundaries(node.start, node.start + taken)
        upper = Node(
            node.seed,
            node.parent,
            start=node.start,
            edge=node.edge[:cut],
            blocks=node.blocks[:taken],
            hashes=node.hashes[:boundaries],
        )
        upper.locks, upper.left = node.locks, node.left
        node.parent.children[self._first(upper.edge)] = upper
        node.parent, node.start, node.edge = upper, node.start + taken, node.edge[cut:]
        node.blocks, node.hashes = node.blocks[taken:], node.hashes[boundaries:]
        upper.children[self._first(node.edge)] = node
        return upper

    def _hold(self, node: Node) -> None:
        if not node.locks:
            self._num_locked += len(node.blocks)
        node.locks += 1

    def _trim(self, node: Node, keep: int, gone: Evicted) -> None:
        """Move all but the first `keep` blocks of an unlocked leaf to `gone`."""
        parent = node.parent
        assert parent
        boundaries = self._boundaries(node.start, node.start + keep)
        gone.blocks.extend(node.blocks[keep:])
        gone.hashes.extend(node.hashes[boundaries:])
        self.num_blocks -= len(node.blocks) - keep
        if keep:
            node.edge = node.edge[: keep * self._block_bytes]
            del node.blocks[keep:], node.hashes[boundaries:]
            return
        del parent.children[self._first(node.edge)]
        node.parent = None
        self._now_unused(parent)

    def _now_unused(self, node: Node) -> None:
        """Queue `node` if it can be evicted now; forget it if it is an empty root."""
        if self._evictable(node) and not node.queued:
            node.queued = True
            heapq.heappush(self._queue, (node.left, next(self._order), node))
        elif node is self._roots.get(node.seed) and not (node.children or node.locks):
            del self._roots[node.seed]

    def _evictable(self, node: Node) -> bool:
        return node.parent is not None and not node.locks and not node.children

    def _boundaries(self, start: int, end: int) -> int:
        return end // self._boundary_blocks - start // self._boundary_blocks

    def _bytes(self, tokens: Tokens, start: int, end: int) -> bytes:
        return bytes(tokens.packed[start * self._block_bytes : end * self._block_bytes])

    def _first(self, edge: bytes) -> bytes:
        return edge[: self._block_bytes]
