"""Protection: the cached prefixes of sequences that wait, kept until they run, within a bound."""

from worker.kv.node import Hold, Node
from worker.kv.radix import RadixTree
from worker.kv.tokens import Tokens


class Waiting:
    """Args: the `tree`; `limit`, blocks that may be protected at once, first come, first served."""

    def __init__(self, tree: RadixTree, limit: int) -> None:
        self._tree = tree
        self._limit = limit
        self._nodes: dict[Tokens, Node] = {}

    def protect(self, tokens: Tokens) -> None:
        """Keep the cached prefix of `tokens`; as it was before when it now exceeds the bound."""
        match = self._tree.match(tokens)
        if self._tree.held(Hold.WAITING) + match.missing(Hold.WAITING) > self._limit:
            return
        before = self._nodes.get(tokens)
        self._nodes[tokens] = self._tree.lock(tokens, match, Hold.WAITING)
        if before:
            self._tree.unlock(before, Hold.WAITING)

    def unprotect(self, tokens: Tokens) -> bool:
        """The sequence waits no longer; whether it was protected."""
        node = self._nodes.pop(tokens, None)
        if node is None:
            return False
        self._tree.unlock(node, Hold.WAITING)
        return True

    def protected(self, tokens: Tokens) -> int:
        """Blocks of `tokens` that are kept for it."""
        node = self._nodes.get(tokens)
        return node.end if node else 0

    def give_up_one(self) -> bool:
        """Give up the protection that came last; whether there was one."""
        return bool(self._nodes) and self.unprotect(next(reversed(self._nodes)))
