"""How the KV memory is shared out between tenants, pins, waiting sequences and the cache."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from worker.kv.policy import DEFAULT_EVICTION, POLICIES, Policy
from worker.kv.shares import Share


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """How the KV memory is shared out.

    Args:
        eviction: the order in which blocks go; takes the block size.
        shares: of tenants; tenants without one share what is left, and each other's blocks.
        pin_share: part of the memory that pins may hold.
        waiting_share: part of it that the prefixes of waiting sequences may hold.

    Raises:
        ValueError: a share is outside [0, 1].
    """

    eviction: Callable[[int], Policy] = POLICIES[DEFAULT_EVICTION]
    shares: Mapping[str, Share] = field(default_factory=dict)
    pin_share: float = 0.25
    waiting_share: float = 0.25

    def __post_init__(self) -> None:
        for name, share in (("pin", self.pin_share), ("waiting", self.waiting_share)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name} share {share:g} is outside [0, 1]")


DEFAULT_POLICY: Final = MemoryPolicy()
