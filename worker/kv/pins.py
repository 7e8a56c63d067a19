"""Pins: cached prefixes that stay until a time, by a caller's wish."""

from dataclasses import dataclass

from radixgate.prefix import TOKEN_BYTES

from worker.kv.node import Hold, Node
from worker.kv.radix import RadixTree
from worker.kv.tokens import Tokens


class PinRefusedError(Exception):
    """The prefix would take more of the KV memory than pins may have."""


@dataclass(frozen=True, slots=True)
class _Pin:
    node: Node
    until: float


class Pins:
    """One pin for each prefix; times are seconds of the caller's clock.

    Args:
        tree: that holds the prefixes.
        block_size: of its blocks.
        limit: blocks that all pins together may hold.
    """

    def __init__(self, tree: RadixTree, block_size: int, limit: int) -> None:
        self._tree = tree
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
        blocks = len(tokens) // self._block_size
        wanted = blocks - len(match.blocks) + match.missing(Hold.PINNED)
        pinned = self._tree.held[Hold.PINNED]
        if pinned + wanted > self._limit:
            raise PinRefusedError(self._refusal(blocks, wanted, pinned, now))
        key, before = self._key(tokens), self._pins.get(self._key(tokens))
        self._pins[key] = _Pin(self._tree.lock(tokens, match, Hold.PINNED), now + ttl)
        if before:
            self._tree.unlock(before.node, Hold.PINNED)
        return len(match.blocks) * self._block_size

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

    def _drop(self, key: tuple[int, bytes]) -> bool:
        pin = self._pins.pop(key, None)
        if pin is None:
            return False
        self._tree.unlock(pin.node, Hold.PINNED)
        return True

    def _key(self, tokens: Tokens) -> tuple[int, bytes]:
        whole = len(tokens) // self._block_size * self._block_size
        return tokens.seed, bytes(tokens.packed[: whole * TOKEN_BYTES])

    def _refusal(self, blocks: int, wanted: int, pinned: int, now: float) -> str:
        soonest = min((pin.until for pin in self._pins.values()), default=None)
        ends = f"; the next pin ends in {soonest - now:.0f} s" if soonest is not None else ""
        return (
            f"a pin of {blocks} blocks needs {wanted} more; pins hold {pinned} blocks and may hold "
            f"{self._limit}{ends}; unpin something, pin less, or allow more (--pin-share)"
        )
