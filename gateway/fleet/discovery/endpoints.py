"""The pods that EndpointSlices name, each once. Pure.

A pod may be in several slices: one for each address family and each Service, and, while it moves
from one slice to another, in both of them or in neither. It is known by its UID, as another pod may
get its name or its address. What no pod stands behind is left out.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any, NamedTuple, TypeAlias

Slice: TypeAlias = Mapping[str, Any]
"""An EndpointSlice of discovery.k8s.io/v1, as in JSON."""


class Endpoint(NamedTuple):
    """A pod that is listed.

    Args:
        uid, name, namespace: of the pod.
        addresses: IP addresses in canonical form; none while it has none yet.
        ready: it takes requests, as its probes say.
        serving: the same, but told of a pod that terminates as well.
        terminating: it is being deleted.
    """

    uid: str
    name: str
    namespace: str
    addresses: frozenset[str]
    ready: bool
    serving: bool
    terminating: bool

    def merged(self, other: "Endpoint") -> "Endpoint":
        """What two entries of one pod say together.

        One of them may be old. A pod that began to terminate never stops, so who says that knows
        better; of the rest, which a worker's own reports tell sooner, the better is taken.
        """
        return self._replace(
            addresses=self.addresses | other.addresses,
            ready=self.ready or other.ready,
            serving=self.serving or other.serving,
            terminating=self.terminating or other.terminating,
        )


class Slices:
    """The slices there are, as a list and then the events of a watch tell."""

    def __init__(self) -> None:
        self._slices: dict[str, tuple[str, list[Endpoint]]] = {}

    def listed(self, slices: Iterable[Slice]) -> None:
        """These there are, and no others."""
        self._slices.clear()
        for each in slices:
            self._put(each)

    def changed(self, kind: str, changed: Slice) -> None:
        """Take an event of the watch: ADDED, MODIFIED or DELETED."""
        name, uid = changed["metadata"]["name"], changed["metadata"]["uid"]
        if kind != "DELETED":
            self._put(changed)
        elif name in self._slices and self._slices[name][0] == uid:
            del self._slices[name]

    def endpoints(self) -> dict[str, Endpoint]:
        """The pods, by UID."""
        pods: dict[str, Endpoint] = {}
        for _, endpoints in self._slices.values():
            for endpoint in endpoints:
                known = pods.get(endpoint.uid)
                pods[endpoint.uid] = endpoint if known is None else known.merged(endpoint)
        return pods

    def _put(self, each: Slice) -> None:
        metadata = each["metadata"]
        self._slices[metadata["name"]] = (metadata["uid"], endpoints_of(each))


class Settling:
    """Keeps a pod that vanishes for some `seconds` more, since it may be between two slices."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._shown: dict[str, Endpoint] = {}
        self._gone_at: dict[str, float] = {}

    def take(self, endpoints: Mapping[str, Endpoint], now: float) -> dict[str, Endpoint]:
        """The pods to go by at `now`, when `endpoints` are listed."""
        for uid in self._shown.keys() - endpoints.keys():
            self._gone_at.setdefault(uid, now + self._seconds)
        self._gone_at = {
            uid: at for uid, at in self._gone_at.items() if uid not in endpoints and now < at
        }
        self._shown = {uid: self._shown[uid] for uid in self._gone_at} | dict(endpoints)
        return self._shown

    @property
    def next(self) -> float | None:
        """When to look again because a pod will have been away for long enough."""
        return min(self._gone_at.values(), default=None)


def endpoints_of(each: Slice) -> list[Endpoint]:
    """The pods of one slice. A null `ready` or `serving` means true, a null `terminating` false."""
    found = []
    for entry in each.get("endpoints") or ():
        target = entry.get("targetRef") or {}
        if target.get("kind") != "Pod" or not target.get("uid"):
            continue
        conditions = entry.get("conditions") or {}
        found.append(
            Endpoint(
                uid=target["uid"],
                name=target.get("name") or "",
                namespace=target.get("namespace") or each["metadata"].get("namespace") or "",
                addresses=frozenset(map(canonical, entry.get("addresses") or ())),
                ready=conditions.get("ready") is not False,
                serving=conditions.get("serving") is not False,
                terminating=conditions.get("terminating") is True,
            )
        )
    return found


def host_of(address: str) -> str:
    """The host of `host:port`, as an endpoint's addresses are written."""
    return canonical(address.rpartition(":")[0].strip("[]"))


def canonical(host: str) -> str:
    """An IP address as there is one way to write it; any other name as it is."""
    try:
        return str(ip_address(host))
    except ValueError:
        return host
