"""The scopes of the namespaces that are in use.

The KV cache knows a namespace by its seed alone. Who wants to compute one of its prefixes elsewhere
must name it, so the scopes of late requests are remembered.
"""

from collections import OrderedDict
from typing import Final

from radixgate.namespace import Namespace, NamespaceSeed
from radixgate.v1.generate_pb2 import Scope

REMEMBERED: Final = 16_384


class Scopes:
    """Args: `fingerprint` of the model; `limit`, scopes to remember."""

    def __init__(self, fingerprint: str, limit: int = REMEMBERED) -> None:
        self._fingerprint = fingerprint
        self._limit = limit
        self._late: OrderedDict[NamespaceSeed, Namespace] = OrderedDict()

    def use(self, scope: Scope) -> NamespaceSeed:
        """The seed of the namespace of a request."""
        namespace = Namespace(self._fingerprint, scope.adapter, scope.tenant, scope.salt)
        seed = namespace.seed()
        self._late[seed] = namespace
        self._late.move_to_end(seed)
        if len(self._late) > self._limit:
            self._late.popitem(last=False)
        return seed

    def find(self, seed: NamespaceSeed) -> Scope | None:
        """The scope of a namespace; None when it was not used lately."""
        namespace = self._late.get(seed)
        if namespace is None:
            return None
        return Scope(tenant=namespace.tenant, salt=namespace.salt, adapter=namespace.adapter)
