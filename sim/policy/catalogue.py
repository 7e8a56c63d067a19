"""All policies by name."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from sim.policy.base import Policy, Site
from sim.policy.least_loaded import LeastLoaded
from sim.policy.prefix_hash import PrefixHash
from sim.policy.round_robin import RoundRobin
from sim.policy.sglang import SglangCacheAware

PolicyFactory = Callable[[Site], Policy]


class Entry(NamedTuple):
    """Args: `make`, which makes the policy for a site; `about` it, in a line, for people."""

    make: PolicyFactory
    about: str


CATALOGUE: Final[dict[str, Entry]] = {
    "round_robin": Entry(RoundRobin, "one worker after the other"),
    "least_loaded": Entry(LeastLoaded, "fewest requests in flight"),
    "prefix_hash": Entry(PrefixHash, "SGLang router: ring over the first 256 tokens, bounded load"),
    "prefix_hash_1k": Entry(
        partial(PrefixHash, prefix_tokens=1024), "the same ring over the first 1,024 tokens"
    ),
    "sglang": Entry(SglangCacheAware, "SGLang router: cache_aware, its approximate tree"),
}

POLICIES: Final[dict[str, PolicyFactory]] = {name: entry.make for name, entry in CATALOGUE.items()}


def named(names: Iterable[str]) -> dict[str, PolicyFactory]:
    """The policies of these `names`.

    Raises:
        ValueError: one is unknown; it lists all.
    """
    asked = list(names)
    unknown = [name for name in asked if name not in POLICIES]
    if unknown:
        known = "\n".join(f"  {name:<16} {entry.about}" for name, entry in CATALOGUE.items())
        raise ValueError(f"policy {', '.join(unknown)!r} is unknown. There are:\n{known}")
    return {name: POLICIES[name] for name in asked}
