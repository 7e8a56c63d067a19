"""Which boundaries are cached in any namespace: what tells a miss by namespace from a new one."""

from collections.abc import Iterable

from radixgate.prefix import PrefixHash


class Contents:
    """Counts cached boundaries by what they hold: the content hash leaves adapter and salt out."""

    def __init__(self) -> None:
        self._content: dict[PrefixHash, PrefixHash] = {}
        self._cached: dict[PrefixHash, int] = {}

    def __contains__(self, content: PrefixHash) -> bool:
        return content in self._cached

    def stored(self, boundaries: Iterable[tuple[PrefixHash, PrefixHash]]) -> None:
        """Boundaries entered the tree, each a prefix hash and its content hash."""
        for name, content in boundaries:
            # NOTE: `removed` cannot tell two prefixes with one hash apart, so the first counts.
            if name not in self._content:
                self._content[name] = content
                self._cached[content] = self._cached.get(content, 0) + 1

    def removed(self, names: Iterable[PrefixHash]) -> None:
        """Boundaries left the tree."""
        for name in names:
            content = self._content.pop(name, None)
            if content is None:
                continue
            count = self._cached.pop(content)
            if count > 1:
                self._cached[content] = count - 1
