"""What parts of the KV memory tenants may have: values, and how people write them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

OTHERS: Final = "*"
"""Stands for all tenants without a share of their own, together."""


@dataclass(frozen=True, slots=True)
class Share:
    """Parts of the KV memory, 0 to 1.

    Args:
        guaranteed: others never evict the tenant below this.
        maximum: the tenant is not admitted beyond this, even when memory is idle.

    Raises:
        ValueError: not 0 <= guaranteed <= maximum <= 1, or the maximum is 0.
    """

    guaranteed: float = 0.0
    maximum: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.guaranteed <= self.maximum <= 1 or not self.maximum:
            raise ValueError(
                f"a share of {self.guaranteed:g} to {self.maximum:g} of the KV memory; "
                "wanted is 0 <= guaranteed <= maximum <= 1, and a maximum above 0"
            )


def parse_shares(text: str) -> Mapping[str, Share]:
    """Shares as people write them: `acme:0.3-0.8,beta:0.2,*:0-0.5`; no text is no shares.

    One number is what is guaranteed, a second one the maximum. `*` is all other tenants together.

    Raises:
        ValueError: it is not written so, or names a tenant twice.
    """
    shares: dict[str, Share] = {}
    for part in filter(None, text.split(",")):
        tenant, _, numbers = part.strip().rpartition(":")
        guaranteed, _, maximum = numbers.partition("-")
        try:
            share = Share(float(guaranteed), float(maximum or 1))
        except ValueError as error:
            raise ValueError(
                f"tenant share {part.strip()!r}: {error}; write TENANT:GUARANTEED or "
                "TENANT:GUARANTEED-MAXIMUM, such as acme:0.3-0.8"
            ) from error
        if not tenant or tenant in shares:
            raise ValueError(
                f"tenant shares {text!r}: each part must name another tenant, such as acme:0.3-0.8"
            )
        shares[tenant] = share
    return shares
