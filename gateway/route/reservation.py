"""One reservation; who made it may know it by a weak reference, and so not keep it."""

from collections.abc import Sequence
from dataclasses import dataclass

from radixgate.prefix import PrefixHash


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Reservation:
    """One request on its way to, or running on, `worker`.

    Args:
        worker: where it goes.
        tokens: of its prompt, beyond those that the worker holds.
        boundaries: of these.
        stride: tokens from one boundary to the next.
        made_at: when this gateway made it or heard of it, in seconds.
        weight: of one of its tokens as work, see `radixgate.work`.
        seen: whether it will be said when its prompt is `computed`.
        gateway: that made it; empty for this one.
        id: counts the reservations of that gateway.
    """

    worker: str
    tokens: int
    boundaries: Sequence[PrefixHash]
    stride: int
    made_at: float
    weight: float = 1.0
    seen: bool = False
    gateway: str = ""
    id: int = 0
