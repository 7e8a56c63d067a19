"""Sequences that wait: how much of them is cached, kept until they run, within a bound."""

from worker.kv.node import Hold, Node
from worker.kv.radix import Match, RadixTree
from worker.kv.tokens import Tokens


class Waiting:
    """Args: the `tree`; `limit`, blocks that may be protected at once, first come, first served."""

    def __init__(self, tree: RadixTree, limit: int) -> None:
        self._tree = tree
        self._limit = limit
        self._found: dict[Tokens, Match] = {}
        self._protected: dict[Tokens, Node] = {}

    def match(self, tokens: Tokens) -> Match:
        """The longest cached prefix; what was found before, if they wait, is not compared again."""
        return self._tree.match(tokens, self._found.get(tokens))

    def look_up(self, tokens: Tokens) -> Match:
        """As `match`, and they wait from now on. If that is more than the last time, protect it."""
        last, match = self._found.get(tokens), self.match(tokens)
        self._found[tokens] = match
        if match.length > (last.length if last else 0):
            self._protect(tokens, match)
        return match

    def leave(self, tokens: Tokens) -> None:
        """They wait no longer. Idempotent."""
        self._found.pop(tokens, None)
        self._unprotect(tokens)

    def protected(self, tokens: Tokens) -> int:
        """Blocks of `tokens` that are kept for them."""
        node = self._protected.get(tokens)
        return node.end if node else 0

    def give_up_one(self) -> bool:
        """Give up the protection that came last; whether there was one."""
        return bool(self._protected) and self._unprotect(next(reversed(self._protected)))

    def _protect(self, tokens: Tokens, match: Match) -> None:
        """As it was before when it now exceeds the bound."""
        if self._tree.held(Hold.WAITING) + match.missing(Hold.WAITING) > self._limit:
            return
        before = self._protected.get(tokens)
        self._protected[tokens] = self._tree.lock(tokens, match, Hold.WAITING)
        if before:
            self._tree.unlock(before, Hold.WAITING)

    def _unprotect(self, tokens: Tokens) -> bool:
        node = self._protected.pop(tokens, None)
        if node is None:
            return False
        self._tree.unlock(node, Hold.WAITING)
        return True
