"""The KV manager: the engine's only door to the cache.

It gives each sequence its block table, shares blocks between sequences with equal prefixes, evicts
what nobody holds, and writes every boundary that comes or goes into the ledger.

Who comes first when blocks are short: sequences that run, then pins, then the prefixes of waiting
sequences, then what is just cached. But what fits into the memory is served: a sequence that is
alone gets the blocks of pins and of waiting ones too. Tenants' guarantees always hold.

A sequence's table is shared blocks first, which are the tree's and never change, then private ones:

    | shared, full, in the tree      | private, being filled |
    0                           len(shared)            len(blocks)
    |-------- cached at open --------|- computed -|- free  |
                                              stored
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from radixgate.prefix import PrefixHash

from worker.kv.account import Account, Accounts
from worker.kv.contents import Contents
from worker.kv.events import KvEvents, Reason
from worker.kv.hottest import HotPrefix
from worker.kv.memory import DEFAULT_POLICY, MemoryPolicy
from worker.kv.misses import Misses
from worker.kv.node import Hold, Node
from worker.kv.pins import Pins
from worker.kv.pool import BlockPool
from worker.kv.radix import Match, RadixTree
from worker.kv.regret import Regret
from worker.kv.tokens import Tokens
from worker.kv.waiting import Waiting

# The manager remembers this many evicted boundaries for each one that the pool can hold.
_REGRET_MEMORY = 4


@dataclass(eq=False, slots=True)
class SequenceKV:
    """The KV of one sequence, from `open` to `close`. Only the manager changes it.

    Attributes:
        blocks: the block table, int64; position p is in blocks[p // block_size] at p % block_size.
        room: tokens that the blocks have room for.
        stored: tokens whose KV is there. May be all of them (fully cached): then the last one is
            computed again for its logits, but not written.
        cached: tokens that were there at `open`.
        misses: why the others were not.
    """

    blocks: "array[int]"
    room: int
    stored: int
    cached: int
    misses: Misses
    _node: Node | None = field(repr=False)


class KVStats(NamedTuple):
    """What the pool holds now.

    Args:
        total_blocks: free + cached + pinned + running.
        free_blocks: hold nothing.
        cached_blocks: hold prefixes that no sequence uses and no pin keeps.
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
    """The cache of one pool.

    Args:
        num_blocks: of the pool.
        block_size: tokens in a block.
        stride: tokens between boundaries, whole blocks.
        events: where boundaries that come and go are written.
        policy: how the memory is shared out.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        stride: int,
        events: KvEvents,
        policy: MemoryPolicy = DEFAULT_POLICY,
    ) -> None:
        self.block_size = block_size
        eviction = policy.eviction(block_size)
        self._stride = stride
        self._pool = BlockPool(num_blocks, block_size)
        self._accounts = Accounts(num_blocks, policy.shares, eviction.classes)
        self._tree = RadixTree(block_size, stride, self._accounts, eviction)
        self._pins = Pins(
            self._tree, self._accounts, block_size, int(policy.pin_share * num_blocks)
        )
        self._waiting = Waiting(self._tree, int(policy.waiting_share * num_blocks))
        self._events = events
        self._regret = Regret(_REGRET_MEMORY * (num_blocks * block_size // stride + 1), stride)
        self._contents = Contents()
        self._open: set[SequenceKV] = set()
        self._private_tokens = 0

    @property
    def max_tokens(self) -> int:
        """All tokens that the memory holds; see `capacity` for what a tenant may have of it."""
        return self._pool.num_blocks * self.block_size

    def capacity(self, tenant: str) -> int:
        """Tokens of the longest sequence of a tenant that fits when it is alone."""
        return self._accounts.capacity(self._accounts.of(tenant)) * self.block_size

    def cached_prefix(self, tokens: Tokens) -> int:
        """Tokens of the longest cached prefix. Changes nothing."""
        return self._tree.match(tokens).length * self.block_size

    def look_up(self, tokens: Tokens) -> int:
        """`cached_prefix` of a sequence that waits; kept for it as far as the bound allows.

        The first call is for a sequence that begins to wait, and later ones see what has been
        cached meanwhile. Ends with `open` or `stop_waiting`.
        """
        return self._waiting.look_up(tokens).length * self.block_size

    def stop_waiting(self, tokens: Tokens) -> None:
        """The sequence waits no longer. Idempotent."""
        self._waiting.leave(tokens)

    def protected(self, tokens: Tokens) -> int:
        """Tokens of a waiting sequence's cached prefix that are kept for it."""
        return self._waiting.protected(tokens) * self.block_size

    @property
    def spare_blocks(self) -> int:
        """Blocks that are free, or hold what nobody has asked to keep."""
        return self._pool.num_free + self._tree.num_evictable

    def pin(self, tokens: Tokens, now: float, ttl: float) -> int:
        """Keep what is cached of `tokens` for `ttl` seconds; how many tokens that is.

        `now` is on the clock of `expire`. See `Pins.pin`.

        Raises:
            PinRefusedError: its tenant may not pin all of `tokens`; nothing has changed.
        """
        self._pins.expire(now)
        return self._pins.pin(tokens, now, ttl)

    def unpin(self, tokens: Tokens) -> bool:
        """Give up the pin of `tokens`; whether there was one."""
        return self._pins.unpin(tokens)

    def expire(self, now: float) -> None:
        """Give up pins whose time has passed."""
        self._pins.expire(now)

    def hottest(self, most_tokens: int) -> list[HotPrefix]:
        """The cached prefixes that requests found most often lately, hottest first.

        Whole blocks of `most_tokens` together at most, each token counted once.
        """
        return self._tree.hottest(most_tokens // self.block_size)

    def open(self, tokens: Tokens, final_length: int, *, hit: bool = True) -> SequenceKV | None:
        """Admit a sequence as a whole: hold its cached prefix, take blocks for the rest of it.

        Args:
            tokens: all it has now.
            final_length: tokens it may grow to.
            hit: whether its cached prefix becomes hotter: a client wants it, for the first time.

        Returns:
            Its KV with blocks for all of `tokens` and one more, or None when it cannot get them
            now; then nothing has changed.

        Raises:
            ValueError: `final_length` tokens do not fit even when the sequence is alone.
        """
        most = self.capacity(tokens.tenant)
        if final_length > most:
            whose = f" for {self._accounts.whose(tokens.tenant)}" if most < self.max_tokens else ""
            raise ValueError(
                f"a sequence of up to {final_length} tokens was asked for; "
                f"the KV memory holds {most}{whose}"
            )
        assert len(tokens) <= final_length
        length = min(len(tokens) + 1, final_length)
        kv = self._admit(tokens, length, hit)
        while kv is None and not self._open and self._give_up_one():
            kv = self._admit(tokens, length, hit)
        return kv

    def lacking(self, kv: SequenceKV, length: int) -> int:
        """Blocks that `kv` has not for `length` tokens, which go beyond its room."""
        return self._pool.blocks_for(length - kv.room)

    def grow(self, kv: SequenceKV, length: int) -> bool:
        """Give `kv` blocks for `length` tokens, evicting what nobody holds.

        The maximum of a tenant makes it evict its own first, but does not stop what runs already.

        Returns:
            False when there are not enough; then only waiting sequences may have lost protection.
        """
        if length <= kv.room:
            return True
        missing = self.lacking(kv, length)
        while not self.reserve(missing, kv):
            alone = len(self._open) == 1
            if not (self._give_up_one() if alone else self._waiting.give_up_one()):
                return False
        self.give(kv, missing)
        return True

    def reserve(self, blocks: int, asker: SequenceKV) -> bool:
        """Take so many `blocks`, at least one, for sequences of the account of `asker`; see `give`.

        Returns:
            False when there are not enough while what waits stays protected; nothing has changed.
        """
        assert asker._node
        account = asker._node.account
        if self._missing(blocks) > self._accounts.evictable_for(account):
            return False
        account.reserve += self._take(blocks, account)
        return True

    def give(self, kv: SequenceKV, blocks: int) -> None:
        """Let `kv` have so many of the blocks that were taken for its account."""
        assert kv._node
        reserve = kv._node.account.reserve
        kept = len(reserve) - blocks
        assert kept >= 0, f"{blocks} blocks of a reserve of {len(reserve)}"
        kv.blocks += reserve[kept:]
        kv.room += blocks * self.block_size
        del reserve[kept:]

    def yields(self, kv: SequenceKV, asker: SequenceKV) -> bool:
        """Whether blocks that `kv` gives up may go to `asker`: not below another's guarantee."""
        assert kv._node
        assert asker._node
        own = kv._node.account
        return own is asker._node.account or own.blocks > own.guaranteed

    def commit(self, kv: SequenceKV, tokens: Tokens, stored: int) -> None:
        """The KV of the first `stored` tokens has been computed: share its full blocks.

        Blocks that the tree already has for the same tokens replace the sequence's own.
        """
        assert kv._node
        assert kv.stored <= stored <= kv.room
        self._private_tokens += stored - kv.stored
        kv.stored = stored
        if stored // self.block_size > kv._node.end:
            self._share(kv, tokens)

    def close(self, kv: SequenceKV) -> None:
        """End, cancel or preempt the sequence; what it committed stays cached. Idempotent."""
        if kv._node is None:
            return
        shared = kv._node.end
        self._pool.free(kv.blocks[shared:])
        kv._node.account.blocks -= len(kv.blocks) - shared
        self._private_tokens -= kv.stored - shared * self.block_size
        self._tree.unlock(kv._node, Hold.RUNNING)
        kv._node, kv.blocks, kv.room, kv.stored = None, array("q"), 0, 0
        self._open.remove(kv)

    def clear(self) -> None:
        """Forget every prefix that nobody holds: no sequence, no pin."""
        gone = self._tree.clear()
        self._pool.free(gone.blocks)
        self._left(gone.hashes, Reason.CLEARED)

    def stats(self) -> KVStats:
        """What the pool holds now, in O(1)."""
        total, free = self._pool.num_blocks, self._pool.num_free
        _, pinned, waiting = self._tree.in_state
        cached = self._tree.num_evictable + waiting
        return KVStats(
            total_blocks=total,
            free_blocks=free,
            cached_blocks=cached,
            pinned_blocks=pinned,
            running_blocks=total - free - cached - pinned,
            used_tokens=self._tree.num_blocks * self.block_size + self._private_tokens,
            allocated_tokens=(total - free) * self.block_size,
            evicted_blocks=self._regret.evicted_blocks,
            recomputed_tokens=self._regret.recomputed_tokens,
        )

    def check_integrity(self) -> None:
        """Raises AssertionError unless each block is free, in the tree, private, or in reserve."""
        self._pool.check_integrity()
        self._tree.check_integrity()
        tree = list(self._tree.blocks())
        private = [block for kv in self._open if kv._node for block in kv.blocks[kv._node.end :]]
        private += [block for account in self._accounts for block in account.reserve]
        assert len({*tree, *private}) == len(tree) + len(private), "a block has two owners"
        assert len(tree) + len(private) + self._pool.num_free == self._pool.num_blocks, "a leak"
        for account in self._accounts:
            open_kv = [kv for kv in self._open if kv._node and kv._node.account is account]
            assert all(kv.room == len(kv.blocks) * self.block_size for kv in open_kv)
            cached, reserved = self._tree.count_blocks(account), len(account.reserve)
            assert account.blocks == cached + reserved + sum(
                len(kv.blocks) - kv._node.end for kv in open_kv if kv._node
            )
        assert self._private_tokens == sum(
            kv.stored - kv._node.end * self.block_size for kv in self._open if kv._node
        )

    def _admit(self, tokens: Tokens, length: int, hit: bool) -> SequenceKV | None:
        """`open`, if that can be done while everything that is held stays."""
        match = self._waiting.match(tokens)
        account = self._accounts.of(tokens.tenant)
        wanted = self._pool.blocks_for(length) - match.length
        mine = account.evictable - match.evictable
        others = self._accounts.evictable_for(account) - account.evictable
        if wanted > self._pool.num_free + mine + others or account.excess(wanted) > mine:
            return None
        cached, held = match.length * self.block_size, match.blocks()
        misses = self._misses(tokens, match)
        node = self._tree.lock(tokens, match, Hold.RUNNING, hit=hit)
        self._waiting.leave(tokens)
        blocks = held + self._take(wanted, account)
        kv = SequenceKV(blocks, len(blocks) * self.block_size, cached, cached, misses, node)
        self._open.add(kv)
        return kv

    def _share(self, kv: SequenceKV, tokens: Tokens) -> None:
        """Move the private blocks that are full into the tree."""
        assert kv._node
        shared, full = kv._node.end, kv.stored // self.block_size
        own = kv.blocks[shared:full]
        kv._node, held, added = self._tree.extend(kv._node, tokens, own)
        if held != own:
            kv.blocks[shared:full] = held
            pairs = zip(own, held, strict=True)
            duplicates = array("q", (mine for mine, tree in pairs if mine != tree))
            self._pool.free(duplicates)
            kv._node.account.blocks -= len(duplicates)
        self._private_tokens -= len(own) * self.block_size
        if added:
            first = full * self.block_size // self._stride - len(added)
            self._events.stored(added)
            self._regret.stored(added)
            self._contents.stored(zip(added, tokens.contents[first:], strict=False))

    def _misses(self, tokens: Tokens, match: Match) -> Misses:
        cached = match.length * self.block_size
        evicted = elsewhere = 0
        for index in range(cached // self._stride, len(tokens.hashes)):
            missed = (index + 1) * self._stride - max(cached, index * self._stride)
            if tokens.hashes[index] in self._regret:
                evicted += missed
            elif tokens.contents[index] in self._contents:
                elsewhere += missed
        return Misses(
            new=len(tokens) - cached - evicted - elsewhere,
            evicted=evicted,
            elsewhere=elsewhere,
            diverges=self._tree.divergence(tokens, match),
        )

    def _give_up_one(self) -> bool:
        """Make way for a sequence that is alone; False when nothing is held for later."""
        return self._waiting.give_up_one() or self._pins.give_up_one()

    def _take(self, wanted: int, account: Account) -> "array[int]":
        """Blocks for a sequence of `account`.

        They come from its own cache as far as it exceeds its maximum, from others' while it has no
        more than its guarantee, and else from whoever has what is worth least. What is evicted
        goes to the sequence at once; through the pool goes only what is beyond that, when it
        exceeded its maximum before.
        """
        blocks = array("q")
        if excess := account.excess(wanted):
            blocks += self._evict(min(excess, account.evictable), [account], account)
        if account.blocks + wanted <= account.guaranteed:
            others = [other for other in self._accounts if other is not account]
            spare = sum(other.spare(account) for other in others)
            missing = self._missing(wanted - len(blocks))
            blocks += self._evict(min(missing, spare), others, account)
        blocks += self._evict(self._missing(wanted - len(blocks)), self._accounts, account)
        account.blocks += wanted
        self._pool.free(blocks[wanted:])
        return blocks[:wanted] + self._pool.allocate(max(0, wanted - len(blocks)))

    def _missing(self, wanted: int) -> int:
        """How many more than the free ones; below 0 when there are free ones to spare."""
        return wanted - self._pool.num_free

    def _evict(self, wanted: int, accounts: Iterable[Account], asker: Account) -> "array[int]":
        if wanted <= 0:
            return array("q")
        gone = self._tree.evict(wanted, accounts, asker)
        self._regret.evicted(gone.hashes, len(gone.blocks))
        self._left(gone.hashes, Reason.CAPACITY)
        return gone.blocks

    def _left(self, hashes: list[PrefixHash], reason: Reason) -> None:
        """These boundaries are in the tree no more."""
        if hashes:
            self._contents.removed(hashes)
            self._events.removed(hashes, reason)
