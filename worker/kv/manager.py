"""The KV manager: the engine's only door to the cache.

It gives each sequence its block table, shares blocks between sequences with equal prefixes, evicts
what no sequence holds, and writes every boundary that comes or goes into the ledger.

A sequence's table is shared blocks first, which are the tree's and never change, then private ones:

    | shared, full, in the tree      | private, being filled |
    0                           len(shared)            len(blocks)
    |-------- cached at open --------|- computed -|- free  |
                                              stored
"""

from dataclasses import dataclass, field

from worker.kv.events import KvEvents, Reason
from worker.kv.misses import Misses
from worker.kv.node import Node
from worker.kv.pool import BlockPool
from worker.kv.radix import Evicted, RadixTree
from worker.kv.regret import Regret
from worker.kv.tokens import Tokens

# The manager remembers this many evicted boundaries for each one that the pool can hold.
_REGRET_MEMORY = 4


@dataclass(eq=False, slots=True)
class SequenceKV:
    """The KV of one sequence, from `open` to `close`. Only the manager changes it.

    Attributes:
        blocks: the block table; position p is in blocks[p // block_size] at p % block_size.
        stored: tokens whose KV is there. May be all of them (fully cached): then the last one is
            computed again for its logits, but not written.
        cached: tokens that were there at `open`.
        misses: why the others were not.
    """

    blocks: list[int]
    stored: int
    cached: int
    misses: Misses
    _node: Node | None = field(repr=False)

    @property
    def is_open(self) -> bool:
        """False after `close`."""
        return self._node is not None


@dataclass(frozen=True, slots=True)
class KVStats:
    """What the pool holds now.

    Attributes:
        total_blocks: free + cached + pinned + running.
        free_blocks: hold nothing.
        cached_blocks: hold prefixes that no sequence uses; evictable.
        pinned_blocks: hold pinned prefixes that no sequence uses.
        running_blocks: in use by sequences.
        used_tokens: tokens whose KV is in the cached and running blocks.
        allocated_tokens: tokens that the cached and running blocks have room for.
        evicted_blocks: evicted to make room, ever.
        recomputed_tokens: computed again because they had been evicted, ever.
    """

    total_blocks: int
    free_blocks: int
    cached_blocks: int
    pinned_blocks: int
    running_blocks: int
    used_tokens: int
    allocated_tokens: int
    evicted_blocks: int
    recomputed_tokens: int


class KVManager:
    """Args: `num_blocks` of `block_size` tokens; `stride` tokens between boundaries; `events`."""

    def __init__(self, num_blocks: int, block_size: int, stride: int, events: KvEvents) -> None:
        self.block_size = block_size
        self._pool = BlockPool(num_blocks, block_size)
        self._tree = RadixTree(block_size, stride)
        self._events = events
        self._regret = Regret(_REGRET_MEMORY * (num_blocks * block_size // stride + 1), stride)
        self._open: set[SequenceKV] = set()
        self._private_tokens = 0

    @property
    def max_tokens(self) -> int:
        """The longest sequence that fits when it is alone."""
        return self._pool.num_blocks * self.block_size

    def cached_prefix(self, tokens: Tokens) -> int:
        """Tokens of the longest cached prefix. Changes nothing."""
        return len(self._tree.match(tokens).blocks) * self.block_size

    def protect(self, tokens: Tokens) -> None:
        """While the sequence waits, keep its cached prefix, as far as the bound allows.

        Call it again to protect what has been cached meanwhile. Ends with `open` or `unprotect`.
        """

    def unprotect(self, tokens: Tokens) -> None:
        """The sequence waits no longer. Idempotent."""

    def open(self, tokens: Tokens, final_length: int) -> SequenceKV | None:
        """Admit a sequence as a whole: hold its cached prefix, take blocks for the rest of it.

        Args:
            tokens: all it has now.
            final_length: tokens it may grow to.

        Returns:
            Its KV with blocks for all of `tokens` and one more, or None when free and evictable
            blocks do not suffice now; then nothing has changed.

        Raises:
            ValueError: `final_length` tokens do not fit even when the sequence is alone.
        """
        if final_length > self.max_tokens:
            raise ValueError(
                f"a sequence of up to {final_length} tokens was asked for; "
                f"the KV memory holds {self.max_tokens}"
            )
        assert len(tokens) <= final_length
        match = self._tree.match(tokens)
        wanted = self._pool.blocks_for(min(len(tokens) + 1, final_length)) - len(match.blocks)
        if wanted > self._pool.num_free + self._tree.num_evictable - match.evictable:
            return None
        node = self._tree.lock(tokens.seed, match)
        cached = len(match.blocks) * self.block_size
        misses = Misses(len(tokens) - cached, 0, 0, cached)
        kv = SequenceKV(match.blocks + self._take(wanted), cached, cached, misses, node)
        self._open.add(kv)
        return kv

    def grow(self, kv: SequenceKV, length: int) -> bool:
        """Give `kv` blocks for `length` tokens, evicting what no sequence holds.

        Returns:
            False when there are not enough; then nothing has changed.
        """
        wanted = max(0, self._pool.blocks_for(length) - len(kv.blocks))
        if wanted > self._pool.num_free + self._tree.num_evictable:
            return False
        kv.blocks += self._take(wanted)
        return True

    def commit(self, kv: SequenceKV, tokens: Tokens, stored: int) -> None:
        """The KV of the first `stored` tokens has been computed: share its full blocks.

        Blocks that the tree already has for the same tokens replace the sequence's own.
        """
        assert kv._node
        assert kv.stored <= stored <= len(kv.blocks) * self.block_size
        shared, full = kv._node.end, stored // self.block_size
        own = kv.blocks[shared:full]
        kv._node, held, added = self._tree.extend(kv._node, tokens, own)
        kv.blocks[shared:full] = held
        self._pool.free(mine for mine, tree in zip(own, held, strict=True) if mine != tree)
        self._private_tokens += stored - kv.stored - len(own) * self.block_size
        kv.stored = stored
        self._events.stored(added)
        self._regret.stored(added)

    def close(self, kv: SequenceKV) -> None:
        """End, cancel or preempt the sequence; what it committed stays cached. Idempotent."""
        if kv._node is None:
            return
        shared = kv._node.end
        self._pool.free(kv.blocks[shared:])
        self._private_tokens -= kv.stored - shared * self.block_size
        self._tree.unlock(kv._node)
        kv._node, kv.blocks, kv.stored = None, [], 0
        self._open.remove(kv)

    def clear(self) -> None:
        """Forget every prefix that no sequence holds."""
        self._release(self._tree.clear(), Reason.CLEARED)

    def stats(self) -> KVStats:
        """What the pool holds now, in O(1)."""
        total, free = self._pool.num_blocks, self._pool.num_free
        cached = self._tree.num_evictable
        return KVStats(
            total_blocks=total,
            free_blocks=free,
            cached_blocks=cached,
            pinned_blocks=0,
            running_blocks=total - free - cached,
            used_tokens=self._tree.num_blocks * self.block_size + self._private_tokens,
            allocated_tokens=(total - free) * self.block_size,
            evicted_blocks=self._regret.evicted_blocks,
            recomputed_tokens=self._regret.recomputed_tokens,
        )

    def check_integrity(self) -> None:
        """Raises AssertionError unless each block is free, in the tree, or private to one."""
        self._pool.check_integrity()
        self._tree.check_integrity()
        tree = list(self._tree.blocks())
        private = [block for kv in self._open if kv._node for block in kv.blocks[kv._node.end :]]
        assert len({*tree, *private}) == len(tree) + len(private), "a block has two owners"
        assert len(tree) + len(private) + self._pool.num_free == self._pool.num_blocks, "a leak"
        assert self._private_tokens == sum(
            kv.stored - kv._node.end * self.block_size for kv in self._open if kv._node
        )

    def _take(self, wanted: int) -> list[int]:
        missing = wanted - self._pool.num_free
        if missing > 0:
            evicted = self._tree.evict(missing)
            self._regret.evicted(evicted.hashes, len(evicted.blocks))
            self._release(evicted, Reason.CAPACITY)
        return self._pool.allocate(wanted)

    def _release(self, gone: Evicted, reason: Reason) -> None:
        self._pool.free(gone.blocks)
        self._events.removed(gone.hashes, reason)
