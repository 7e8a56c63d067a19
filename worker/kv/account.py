"""Who has how much of the KV memory, and how much of it may go for whom."""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from worker.kv.node import Hold
from worker.kv.queue import LeafQueue
from worker.kv.shares import OTHERS, Share


@dataclass(slots=True, eq=False)
class Account:
    """The blocks of one tenant, or of all that have no share of their own.

    Attributes:
        guaranteed, maximum: of its share, in blocks.
        blocks: its own, cached ones, those private to its sequences, and the reserve.
        evictable: blocks of them that may go.
        held: blocks of them by every `Hold` that they have.
        reserve: those of them that are to be given to its sequences.
        leaves: where they may go from now, a queue for each class of the policy.
    """

    guaranteed: int
    maximum: int
    leaves: list[LeafQueue]
    blocks: int = 0
    evictable: int = 0
    held: list[int] = field(default_factory=lambda: [0] * len(Hold))
    reserve: "array[int]" = field(default_factory=lambda: array("q"))

    def spare(self, asker: "Account") -> int:
        """Its blocks that may go for a sequence of `asker`."""
        if self is asker:
            return self.evictable
        return min(self.evictable, max(0, self.blocks - self.guaranteed))

    def excess(self, wanted: int) -> int:
        """Blocks that it would have beyond its maximum with `wanted` more."""
        return max(0, self.blocks + wanted - self.maximum)


class Accounts:
    """All accounts of a pool; few, so that they can be walked through.

    Args:
        num_blocks: of the pool.
        shares: by tenant; `OTHERS` may have one too.
        classes: of leaves that the eviction policy tells apart.

    Raises:
        ValueError: the guarantees leave no memory for some tenant.
    """

    def __init__(self, num_blocks: int, shares: Mapping[str, Share], classes: int) -> None:
        self.num_blocks = num_blocks
        self._by_tenant = {
            tenant: Account(
                int(share.guaranteed * num_blocks),
                int(share.maximum * num_blocks),
                [LeafQueue() for _ in range(classes)],
            )
            for tenant, share in {OTHERS: Share(), **shares}.items()
        }
        for tenant, account in self._by_tenant.items():
            if self.capacity(account) < 1:
                guarantees = sum(each.guaranteed for each in self)
                raise ValueError(
                    f"tenant shares: {guarantees} of {num_blocks} KV blocks are guaranteed, which "
                    f"leaves none for {tenant!r}; guarantee less, or allow it more"
                )

    def __iter__(self) -> Iterator[Account]:
        return iter(self._by_tenant.values())

    def of(self, tenant: str) -> Account:
        """The account of a tenant."""
        return self._by_tenant.get(tenant) or self._by_tenant[OTHERS]

    def whose(self, tenant: str) -> str:
        """Whom the account of a tenant is of, in the words of messages."""
        if len(self._by_tenant) == 1:
            return "all tenants"
        return f"tenant {tenant!r}" if tenant in self._by_tenant else "tenants without a share"

    def capacity(self, account: Account) -> int:
        """Blocks that one sequence can always get when it is alone."""
        others = sum(other.guaranteed for other in self if other is not account)
        return min(account.maximum, self.num_blocks - others)

    def evictable_for(self, account: Account) -> int:
        """Blocks that may go for a sequence of `account`."""
        blocks = account.evictable
        for other in self:
            if other is not account:
                blocks += other.spare(account)
        return blocks
