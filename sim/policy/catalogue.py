"""All policies by name."""

import math
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Final, NamedTuple

from gateway.route.cost import CostConfig
from gateway.route.room import BACKLOG_MS
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

_TUNED: Final = "cost"
_BACKLOG: Final = "backlog_ms"


def policy(text: str) -> PolicyFactory:
    """The policy that `text` names; `cost` may have other constants: `cost:wait=0.5/tie_ms=2`.

    The constants are those of `CostConfig`, and `backlog_ms`, see `gateway.route.room`.

    Raises:
        ValueError: there is none of that name, or no such constant, or it is out of its range.
    """
    name, colon, settings = text.partition(":")
    if name not in CATALOGUE:
        known = "\n".join(f"  {known:<17} {entry.about}" for known, entry in CATALOGUE.items())
        raise ValueError(f"policy {text!r} is unknown. There are:\n{known}")
    if not colon:
        return CATALOGUE[name].make
    if name != _TUNED:
        raise ValueError(f"policy {text!r}: only {_TUNED} takes settings")
    return _tuned(text, settings)


def _tuned(text: str, settings: str) -> PolicyFactory:
    names = [field.name for field in fields(CostConfig)]
    values: dict[str, float] = {}
    for setting in settings.split("/"):
        name, _, value = setting.partition("=")
        if name not in (*names, _BACKLOG):
            raise ValueError(
                f"policy {text!r}: {name!r} is no setting of it; there are "
                f"{', '.join([*names, _BACKLOG])}"
            )
        if name in values:
            raise ValueError(f"policy {text!r}: {name} is named twice")
        values[name] = _constant(text, name, value)
    backlog_ms = values.pop(_BACKLOG, BACKLOG_MS)
    return partial(Cost, config=CostConfig(**values), backlog_ms=backlog_ms)


def _constant(text: str, name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    wanted, good = ("above 0", number > 0) if name == _BACKLOG else ("0 or more", number >= 0)
    if not (good and number < math.inf):
        raise ValueError(f"policy {text!r}: {name} must be a number, {wanted}, and is {value!r}")
    return number
