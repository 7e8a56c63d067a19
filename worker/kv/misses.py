"""Why tokens of a sequence were not cached when it was opened."""

from typing import NamedTuple


class Misses(NamedTuple):
    """Each token that was not cached counts once, by the boundary that it belongs to.

    Args:
        new: never seen here, or forgotten, or behind the last whole boundary.
        evicted: were cached, and had to make room.
        elsewhere: cached in another namespace of the same tenant (salt or adapter differ). What
            other tenants have cached is nobody's business.
        diverges: first position at which the sequence differs from all that is cached in its
            namespace; exact to the token. Its length when nothing differs.
    """

    new: int
    evicted: int
    elsewhere: int
    diverges: int

    @property
    def tokens(self) -> int:
        """All that were not cached."""
        return self.new + self.evicted + self.elsewhere
