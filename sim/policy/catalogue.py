"""All policies by name."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from gateway.route.cost import CostConfig
from sim.policy.base import Policy, Site
from sim.policy.cost import Cost
from sim.policy.dynamo import Dynamo
from sim.policy.least_loaded import LeastLoaded
from sim.policy.llmd import LlmdScorers
from sim.policy.preble import Preble
from sim.policy.prefix_hash import PrefixHash
from sim.policy.prefix_only import PrefixOnly
from sim.policy.ray import RayPrefixAffinity
from sim.policy.round_robin import RoundRobin
from sim.policy.session import SessionAffinity
from sim.policy.sglang import SglangCacheAware
from sim.policy.uniform import Uniform

PolicyFactory = Callable[[Site], Policy]


class Entry(NamedTuple):
    """Args: `make`, which makes the policy for a site; `about` it, in a line, for people."""

    make: PolicyFactory
    about: str


CATALOGUE: Final[dict[str, Entry]] = {
    "cost": Entry(Cost, "Radixgate: least expected delay, with reservations and turns"),
    "cost-evict": Entry(
        partial(Cost, config=CostConfig(evict=0)), "cost without what must be evicted"
    ),
    "cost-interfere": Entry(
        partial(Cost, config=CostConfig(interfere=0)), "cost without what a prefill delays"
    ),
    "cost-load": Entry(
        partial(Cost, config=CostConfig(wait=0)), "cost without backlogs and taken slots"
    ),
    "cost-reservations": Entry(
        partial(Cost, reserves=False), "cost without what is on its way to workers"
    ),
    "round_robin": Entry(RoundRobin, "one worker after the other"),
    "random": Entry(Uniform, "any worker"),
    "least_loaded": Entry(LeastLoaded, "fewest requests in flight"),
    "prefix_only": Entry(
        PrefixOnly, "most of the prompt by the workers' reports, whatever the load"
    ),
    "session": Entry(SessionAffinity, "hash ring over the session, or the first stride"),
    "prefix_hash": Entry(PrefixHash, "SGLang router: ring over the first 256 tokens, bounded load"),
    "prefix_hash_1k": Entry(
        partial(PrefixHash, prefix_tokens=1024), "the same ring over the first 1,024 tokens"
    ),
    "sglang": Entry(SglangCacheAware, "SGLang router: cache_aware, its approximate tree"),
    "dynamo": Entry(Dynamo, "NVIDIA Dynamo: blocks to prefill plus blocks to decode"),
    "llmd": Entry(LlmdScorers, "llm-d: scores of queue 2, KV utilisation 2, prefix 3"),
    "preble": Entry(Preble, "Preble E2: exploit what is cached, or explore by load"),
    "ray": Entry(RayPrefixAffinity, "Ray Serve: prefix tree over power of two choices"),
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
