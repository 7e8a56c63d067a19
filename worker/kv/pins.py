"""Pins: cached prefixes that stay until a time, by a caller's wish.

They may hold a part of the memory, and those of a tenant its share of that part: what others are
guaranteed of it is kept for their pins, and nobody has more than its maximum of it. So no tenant
can keep another from pinning what it is guaranteed.
"""

from dataclasses import dataclass

from radixgate.prefix import TOKEN_BYTES

from worker.kv.account import Account, Accounts
from worker.kv.node import Hold, Node
from worker.kv.radix import RadixTree
from worker.kv.tokens import Tokens


class PinRefusedError(Exception):
    """The prefix would take more of the KV memory than pins of its tenant may have."""


@dataclass(frozen=True, slots=True)
class _Pin:
    node: Node
    until: float


class Pins:
    """One pin for each prefix; times are seconds of the caller's clock.

    Args:
        tree: that holds the prefixes.
        accounts: of the tree.
        block_size: of its blocks.
        limit: blocks that all pins together may hold.
    """

    def __init__(self, tree: RadixTree, accounts: Accounts, block_size: int, limit: int) -> None:
        self._tree = tree
        self._accounts = accounts
        self._block_size = block_size
        self._limit = limit
        self._pins: dict[tuple[int, bytes], _Pin] = {}

    def pin(self, tokens: Tokens, now: float, ttl: float) -> int:
        """Keep what is cached of `tokens`, in whole blocks, until `now + ttl`.

        A pin of the same tokens is replaced: by one for more of them, or for a later time.

        Returns:
            Tokens that are pinned.

        Raises:
            PinRefusedError: there is no room for a pin of all of `tokens`; nothing has changed.
        """
        match = self._tree.match(tokens)
        wanted = len(tokens) // self._block_size - match.length + match.missing(Hold.PINNED)
        account = self._accounts.of(tokens.tenant)
        if account.held[Hold.PINNED] + wanted > self._room(account):
            raise PinRefusedError(self._refusal(tokens, wanted, now))
        key, before = self._key(tokens), self._pins.get(self._key(tokens))
        self._pins[key] = _Pin(self._tree.lock(tokens, match, Hold.PINNED), now + ttl)
        if before:
            self._tree.unlock(before.node, Hold.PINNED)
        return match.length * self._block_size

    def unpin(self, tokens: Tokens) -> bool:
        """Give up the pin of these tokens; whether there was one."""
        return self._drop(self._key(tokens))

    def expire(self, now: float) -> None:
        """Give up the pins whose time has passed."""
        for key in [key for key, pin in self._pins.items() if pin.until <= now]:
            self._drop(key)

    def give_up_one(self) -> bool:
        """Give up the pin that would end first; whether there was one."""
        key = min(self._pins, key=lambda key: self._pins[key].until, default=None)
        return key is not None and self._drop(key)

    def _room(self, account: Account) -> int:
        """Blocks that pins of `account` may hold now, those that they hold included."""
        others = sum(
            max(self._part(other.guaranteed), other.held[Hold.PINNED])
            for other in self._accounts
            if other is not account
        )
        return min(self._part(account.maximum), self._limit - others)

    def _part(self, blocks: int) -> int:
        """What a share of so many blocks is of the memory that pins may hold."""
        return blocks * self._limit // self._accounts.num_blocks

    def _drop(self, key: tuple[int, bytes]) -> bool:
        pin = self._pins.pop(key, None)
        if pin is None:
            return False
        self._tree.unlock(pin.node, Hold.PINNED)
        return True

    def _key(self, tokens: Tokens) -> tuple[int, bytes]:
        whole = len(tokens) // self._block_size * self._block_size
        return tokens.seed, bytes(tokens.packed[: whole * TOKEN_BYTES])

    def _refusal(self, tokens: Tokens, wanted: int, now: float) -> str:
        account = self._accounts.of(tokens.tenant)
        own = [pin.until for pin in self._pins.values() if pin.node.account is account]
        ends = f"; the next of them ends in {min(own) - now:.0f} s" if own else ""
        return (
            f"a pin of {len(tokens) // self._block_size} blocks needs {wanted} more; pins of "
            f"{self._accounts.whose(tokens.tenant)} hold {account.held[Hold.PINNED]} blocks and "
            f"may hold {self._room(account)}{ends}; unpin something, pin less, or allow more "
            "(--pin-share, --tenant-shares)"
        )
