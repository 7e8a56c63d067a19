"""How much of a busy pool each tenant may have: values, and how people write them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

OTHERS: Final = "*"
"""Stands for each tenant that is not named."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Args: `named`, weights above 0 by tenant; what each of the `others` has."""

    named: Mapping[str, float] = field(default_factory=dict)
    others: float = 1.0

    def of(self, tenant: str) -> float:
        """Twice the weight is twice the tokens, as long as both tenants wait."""
        return self.named.get(tenant, self.others)

    def label(self, tenant: str) -> str:
        """`tenant` in metrics: named tenants alone, since clients can make up any number."""
        return tenant if tenant in self.named else OTHERS


def parse_weights(text: str) -> Weights:
    """Weights as people write them: `acme:3,beta:1,*:0.5`; no text is 1 for all.

    `*` is each tenant that is not named; without it they have 1.

    Raises:
        ValueError: it is not written so, names a tenant twice, or a weight is not above 0.
    """
    weights: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        tenant, _, number = part.rpartition(":")
        try:
            weight = float(number)
        except ValueError:
            weight = 0.0
        if not 0 < weight < math.inf:
            raise ValueError(
                f"tenant weight {part!r}: write TENANT:WEIGHT with a weight above 0, such as acme:3"
            )
        if not tenant or tenant in weights:
            raise ValueError(
                f"tenant weights {text!r}: each part must name another tenant, such as acme:3"
            )
        weights[tenant] = weight
    others = weights.pop(OTHERS, 1.0)
    return Weights(weights, others)
