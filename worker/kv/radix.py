"""The radix tree: which prefixes are cached, in which blocks, and which of them may go.

One root per namespace. An edge is a run of whole blocks of tokens, so a path from a root names a
prefix and the blocks that hold its KV. Tokens are compared, never hashes. Holds count who needs a
node or one below it: what is held stays. What nobody holds can all be evicted, leaf by leaf, each
from its tail, in the order of the policy.
"""

import math
from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from radixgate.namespace import NamespaceSeed
from radixgate.prefix import TOKEN_BYTES, PrefixHash

from worker.kv.account import Account, Accounts
from worker.kv.hottest import HotPrefix, hottest
from worker.kv.node import Hold, Node
from worker.kv.policy import Policy
from worker.kv.queue import LeafQueue
from worker.kv.tokens import Tokens


class Match(NamedTuple):
    """The longest cached prefix of some tokens, valid until the tree changes.

    Attributes:
        node: the last node of the path, None when nothing of the namespace is there.
        taken: blocks of `node` that belong to the prefix.
        length: all blocks of the prefix.
    """

    node: Node | None
    taken: int
    length: int

    def blocks(self) -> "array[int]":
        """The blocks of the prefix."""
        blocks = array("q")
        for node, taken in reversed(list(self.parts())):
            blocks += node.blocks[:taken]
        return blocks

    def parts(self) -> Iterator[tuple[Node, int]]:
        """The nodes of the path, last one first, each with how many of its blocks belong to it."""
        if self.node is not None:
            yield self.node, self.taken
            yield from ((node, len(node.blocks)) for node in self.node.path() if node != self.node)

    @property
    def evictable(self) -> int:
        """How many of the blocks nobody holds."""
        return sum(taken for node, taken in self.parts() if node.hold is None)

    def missing(self, hold: Hold) -> int:
        """How many of the blocks `hold` does not hold."""
        return sum(taken for node, taken in self.parts() if not node.holds[hold])


class Extension(NamedTuple):
    """Where a sequence is after `extend`.

    Attributes:
        node: what it holds now.
        blocks: the tree's, for the tokens it extended by.
        stored: the boundaries that are new in the tree.
    """

    node: Node
    blocks: "array[int]"
    stored: list[PrefixHash]


class Evicted(NamedTuple):
    """Blocks that left the tree, and the boundaries that left with them."""

    blocks: "array[int]"
    hashes: list[PrefixHash]


class RadixTree:
    """A tree for one pool.

    Args:
        block_size: tokens in a block.
        stride: tokens between boundaries, whole blocks.
        accounts: whose blocks the tree's are; it books their `evictable` and `held`.
        policy: what goes first.

    Attributes:
        num_blocks: in the tree.
        in_state: blocks by their first `Hold`; those that nobody holds are not in it.
    """

    def __init__(self, block_size: int, stride: int, accounts: Accounts, policy: Policy) -> None:
        if stride % block_size:
            raise ValueError(f"stride {stride} is not a multiple of block size {block_size}")
        self.num_blocks = 0
        self.in_state = [0] * len(Hold)
        self._block_bytes = block_size * TOKEN_BYTES
        self._boundary_blocks = stride // block_size
        self._accounts = accounts
        self._policy = policy
        self._roots: dict[NamespaceSeed, Node] = {}
        self._tick = 0
        self._requests = 0

    @property
    def num_evictable(self) -> int:
        """Blocks that nobody holds."""
        return self.num_blocks - sum(self.in_state)

    def held(self, hold: Hold) -> int:
        """Blocks that have this `Hold`, whatever others they have."""
        return sum(account.held[hold] for account in self._accounts)

    def match(self, tokens: Tokens, last: Match | None = None) -> Match:
        """The longest cached prefix of whole blocks of `tokens`. Changes nothing.

        Args: `last`: an earlier match of them, however old. What of it is still cached is not
        compared again.
        """
        root = self._roots.get(tokens.seed)
        if root is None:
            return Match(None, 0, 0)
        limit = len(tokens.packed) // self._block_bytes
        node, taken = root, 0
        if last and last.node and (last.node.parent or last.node is root):
            node, taken = self._resume(last.node, last.length, tokens, limit)
        while taken == len(node.blocks) and (step := self._descend(node, tokens, limit)):
            node, taken = step
        return Match(node, taken, node.start + taken)

    def divergence(self, tokens: Tokens, match: Match) -> int:
        """The first position at which `tokens` differ from all that is cached in their namespace.

        `match` is theirs. Exact to the token; their length when nothing differs.
        """
        if match.node is None:
            return 0
        node, taken = match.node, match.taken
        start = node.start + taken
        rest = self._bytes(tokens, start, start + 1)
        if taken < len(node.blocks):
            nearest = [
                bytes(node.edge[taken * self._block_bytes : (taken + 1) * self._block_bytes])
            ]
        else:
            # NOTE: of sorted blocks, one beside the place of `rest` has the most in common with it.
            place = bisect_left(node.firsts, rest)
            nearest = node.firsts[max(0, place - 1) : place + 1]
        common = max((_common(rest, first) for first in nearest), default=0)
        return (start * self._block_bytes + common) // TOKEN_BYTES

    def lock(self, tokens: Tokens, match: Match, hold: Hold, *, hit: bool = False) -> Node:
        """Hold the blocks of the match of `tokens`, just made, until `unlock` of the result.

        `hit`: a request found them.
        """
        node = match.node or self._roots.setdefault(
            tokens.seed, Node(tokens.seed, self._accounts.of(tokens.tenant))
        )
        if match.taken < len(node.blocks):
            node = self._split(node, match.taken)
        self._requests += hit
        for held in node.path():
            if hit:
                held.hit(self._requests)
            self._hold(held, hold)
        return node

    def unlock(self, node: Node, hold: Hold) -> None:
        """Give up what `lock` returned; what nobody holds then may be evicted."""
        if hold is Hold.RUNNING:
            self._tick += 1
        for held in node.path():
            if hold is Hold.RUNNING:
                held.left = self._tick
            self._let_go(held, hold)
        self._now_unused(node)

    def extend(self, node: Node, tokens: Tokens, blocks: "array[int]") -> Extension:
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
        held = array("q")
        while step := self._descend(node, tokens, limit):
            child, taken = step
            node = child if taken == len(child.blocks) else self._split(child, taken)
            self._hold(node, Hold.RUNNING)
            held += node.blocks
        new = blocks[len(held) :]
        if not new:
            return Extension(node, held, [])
        stored = tokens.hashes[node.end // self._boundary_blocks : limit // self._boundary_blocks]
        shared = node.children or node.heat or node.holds != [1, 0, 0]
        place = slice(node.end * self._block_bytes, limit * self._block_bytes)
        with memoryview(tokens.packed) as packed, packed[place] as edge:
            if node.parent and not (shared or node.trimmed):
                # NOTE: only this sequence has had the leaf, so it grows in place: one node a
                # sequence. Never where others were evicted, see `_resume`.
                node.edge += edge
                node.blocks += new
                node.hashes += stored
            else:
                node = self._add_leaf(node, edge, new, stored)
        self.num_blocks += len(new)
        self._count(node, len(new))
        return Extension(node, held + new, list(stored))

    def _add_leaf(
        self, parent: Node, edge: memoryview, blocks: "array[int]", hashes: list[PrefixHash]
    ) -> Node:
        """A new child of `parent` for a sequence that runs."""
        leaf = Node(
            parent.seed,
            parent.account,
            parent,
            start=parent.end,
            edge=edge,
            blocks=blocks,
            hashes=hashes,
        )
        parent.children[self._first(edge)] = leaf
        insort(parent.firsts, self._first(edge))
        leaf.holds[Hold.RUNNING] = 1
        return leaf

    def evict(self, wanted: int, accounts: Iterable[Account], asker: Account) -> Evicted:
        """Take out `wanted` blocks of `accounts` that may go for `asker`."""
        gone = Evicted(array("q"), [])
        while (missing := wanted - len(gone.blocks)) > 0:
            leaf = self._least_worth(accounts, asker)
            assert leaf, f"{missing} of {wanted} blocks are not evictable"
            most = min(missing, leaf.account.spare(asker))
            self._trim(leaf, max(0, len(leaf.blocks) - most), gone)
        return gone

    def clear(self) -> Evicted:
        """Take out all blocks that nobody holds."""
        gone = Evicted(array("q"), [])
        roots = list(self._roots.values())
        unheld = [node for root in roots for node in root.below() if node.hold is None]
        for node in reversed(unheld):
            self._trim(node, 0, gone)
        return gone

    def hottest(self, most_blocks: int) -> list[HotPrefix]:
        """What requests found most often lately; see `worker.kv.hottest`."""
        return hottest(self._roots.values(), self._requests, most_blocks)

    def blocks(self) -> Iterator[int]:
        """The ids of all cached blocks."""
        for root in self._roots.values():
            for node in root.below():
                yield from node.blocks

    def count_blocks(self, account: Account) -> int:
        """Blocks of an account, by a walk through the tree."""
        roots = (root for root in self._roots.values() if root.account is account)
        return sum(len(node.blocks) for root in roots for node in root.below())

    def check_integrity(self) -> None:
        """Raises AssertionError when counts, holds, edges or the eviction queues are wrong."""
        nodes = [node for root in self._roots.values() for node in (root, *root.below())]
        assert self.num_blocks == sum(len(node.blocks) for node in nodes)
        for hold in Hold:
            assert self.in_state[hold] == sum(len(n.blocks) for n in nodes if n.hold == hold)
        for account in self._accounts:
            own = [node for node in nodes if node.account is account]
            assert account.evictable == sum(len(n.blocks) for n in own if n.hold is None)
            for hold in Hold:
                assert account.held[hold] == sum(len(n.blocks) for n in own if n.holds[hold])
            queued = sum(node.queue in account.leaves for node in own)
            assert queued == sum(map(len, account.leaves)), "a queue has a node that is gone"
        for node in nodes:
            assert len(node.edge) == len(node.blocks) * self._block_bytes
            assert node.evictable == (node.queue is not None), "a leaf that may go is not queued"
            assert len(node.hashes) == self._boundaries(node.start, node.end)
            assert node.blocks or (node.parent is None and (any(node.holds) or node.children))
            assert node.firsts == sorted(node.children)
            for hold in Hold:
                below = sum(child.holds[hold] for child in node.children.values())
                assert node.holds[hold] >= below >= 0
            for first, child in node.children.items():
                assert child.parent is node
                assert child.start == node.end
                assert self._first(child.edge) == first
                assert child.left <= node.left
                assert child.heat_at(self._requests) <= node.heat_at(self._requests) + 1e-9

    def _descend(self, node: Node, tokens: Tokens, limit: int) -> tuple[Node, int] | None:
        """The child that goes on with `tokens` after `node`, and how many of its blocks agree.

        `limit` is the number of blocks of `tokens` that count.
        """
        if not node.children or node.end >= limit:
            return None
        child = node.children.get(self._bytes(tokens, node.end, node.end + 1))
        if child is None:
            return None
        return child, self._agreeing(child, tokens, limit, 1)

    def _resume(self, node: Node, known: int, tokens: Tokens, limit: int) -> tuple[Node, int]:
        """The last node of a match of `known` blocks, as it is now, and how many of its agree.

        NOTE: a node in the tree never has other tokens at a position than it had, only fewer or
        more of them. But it may have been split, so that what agreed is in a node above it.
        """
        while node.parent and node.start >= known:
            node = node.parent
        known = min(known - node.start, len(node.blocks))
        return node, self._agreeing(node, tokens, limit, known)

    def _agreeing(self, node: Node, tokens: Tokens, limit: int, known: int) -> int:
        """How many blocks of `node` agree with `tokens`, the first `known` being known to."""
        most = min(len(node.blocks), limit - node.start)
        if known >= most:
            return most
        size, offset = self._block_bytes, (node.start + known) * self._block_bytes
        with memoryview(node.edge) as edge:

            def differ(blocks: int) -> bool:
                return not tokens.packed.startswith(edge[known * size : blocks * size], offset)

            # NOTE: of what waits, most is looked up again and again, and still differs at once.
            if differ(known + 1):
                return known
            if not differ(most):
                return most
            return known + bisect_left(range(known, most), True, key=differ) - 1

    def _split(self, node: Node, taken: int) -> Node:
        """Cut `node` after `taken` of its blocks; returns the new upper part.

        NOTE: `node` stays the lower part, so that a sequence that holds it holds both.
        """
        assert node.parent
        cut = taken * self._block_bytes
        boundaries = self._boundaries(node.start, node.start + taken)
        upper = Node(
            node.seed,
            node.account,
            node.parent,
            start=node.start,
            edge=bytes(node.edge[:cut]),
            blocks=node.blocks[:taken],
            hashes=node.hashes[:boundaries],
        )
        upper.holds, upper.left = node.holds.copy(), node.left
        upper.heat, upper.heated = node.heat, node.heated
        node.parent.children[self._first(upper.edge)] = upper
        node.parent, node.start = upper, node.start + taken
        del node.edge[:cut]
        node.blocks, node.hashes = node.blocks[taken:], node.hashes[boundaries:]
        upper.children[self._first(node.edge)] = node
        upper.firsts.append(self._first(node.edge))
        return upper

    def _hold(self, node: Node, hold: Hold) -> None:
        if node.holds[hold]:
            node.holds[hold] += 1
            return
        self._unqueue(node)
        self._count(node, -len(node.blocks))
        node.holds[hold] = 1
        self._count(node, len(node.blocks))

    def _let_go(self, node: Node, hold: Hold) -> None:
        if node.holds[hold] > 1:
            node.holds[hold] -= 1
            return
        self._count(node, -len(node.blocks))
        node.holds[hold] = 0
        self._count(node, len(node.blocks))

    def _count(self, node: Node, blocks: int) -> None:
        """Book so many `blocks` more of `node`, or fewer, as its holds are now."""
        held = node.account.held
        running, pinned, waiting = node.holds
        if running:
            held[Hold.RUNNING] += blocks
        if pinned:
            held[Hold.PINNED] += blocks
        if waiting:
            held[Hold.WAITING] += blocks
        state = node.hold
        if state is None:
            node.account.evictable += blocks
        else:
            self.in_state[state] += blocks

    def _least_worth(self, accounts: Iterable[Account], asker: Account) -> Node | None:
        """The leaf that goes first of those that may go for `asker`."""
        least, lowest = None, (math.inf, 0)
        for account in accounts:
            if not account.spare(asker):
                continue
            for kind, queue in enumerate(account.leaves):
                leaf = queue.first
                if leaf is None:
                    continue
                worth = self._policy.worth(kind, self._tick - leaf.left), leaf.left
                if worth < lowest:
                    least, lowest = leaf, worth
        return least

    def _trim(self, node: Node, keep: int, gone: Evicted) -> None:
        """Move all but the first `keep` blocks of a leaf that nobody holds to `gone`."""
        parent = node.parent
        assert parent
        boundaries = self._boundaries(node.start, node.start + keep)
        gone.blocks.extend(node.blocks[keep:])
        gone.hashes.extend(node.hashes[boundaries:])
        less = len(node.blocks) - keep
        self.num_blocks -= less
        node.account.evictable -= less
        node.account.blocks -= less
        if keep:
            node.trimmed = True
            del node.edge[keep * self._block_bytes :]
            del node.blocks[keep:], node.hashes[boundaries:]
            # NOTE: a shorter leaf may be of another class.
            if node.queue is not self._queue_of(node):
                self._unqueue(node)
                self._now_unused(node)
            return
        first = self._first(node.edge)
        del parent.children[first], parent.firsts[bisect_left(parent.firsts, first)]
        self._unqueue(node)
        node.parent = None
        self._now_unused(parent)

    def _unqueue(self, node: Node) -> None:
        if node.queue:
            node.queue.discard(node)

    def _now_unused(self, node: Node) -> None:
        """Queue `node` if it can be evicted now; forget it if it is an empty root."""
        if node.evictable and node.queue is None:
            self._queue_of(node).push(node)
        elif node is self._roots.get(node.seed) and not (node.children or any(node.holds)):
            del self._roots[node.seed]

    def _queue_of(self, leaf: Node) -> LeafQueue:
        return leaf.account.leaves[self._policy.class_of(leaf)]

    def _boundaries(self, start: int, end: int) -> int:
        return end // self._boundary_blocks - start // self._boundary_blocks

    def _bytes(self, tokens: Tokens, start: int, end: int) -> bytes:
        with memoryview(tokens.packed) as packed:
            return bytes(packed[start * self._block_bytes : end * self._block_bytes])

    def _first(self, edge: bytearray | memoryview) -> bytes:
        return bytes(edge[: self._block_bytes])


def _common(one: bytes, other: bytes) -> int:
    """Bytes that both begin with."""
    most = min(len(one), len(other))
    return next((index for index in range(most) if one[index] != other[index]), most)
