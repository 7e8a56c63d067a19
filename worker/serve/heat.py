"""The hottest prefixes on the wire, each with the one scope that it may be computed in.

They are prompts of all tenants, so only who has the key is told: the gateway that this worker
reports to. Clients that stream from workers themselves are not.
"""

import hmac

from grpc import StatusCode
from radixgate.refused import RefusedError
from radixgate.v1.worker_pb2 import HotPrefix

from worker.serve.prefill import Prefill
from worker.serve.scopes import Scopes


class Heat:
    """Args: `prefill` asks the engine; `scopes` of late requests; `key`, which opens them."""

    def __init__(self, prefill: Prefill, scopes: Scopes, key: bytes) -> None:
        self._prefill = prefill
        self._key = key
        self._scopes = scopes

    async def hottest(self, max_tokens: int, key: bytes) -> list[HotPrefix]:
        """Hottest first, `max_tokens` together at most; without those whose scope is forgotten.

        Raises:
            RefusedError: PERMISSION_DENIED, the key is another; INTERNAL, the engine is broken.
        """
        if not hmac.compare_digest(key, self._key):
            raise RefusedError(
                StatusCode.PERMISSION_DENIED,
                "Hottest was asked with a key that is not of this worker's Hello; only the gateway"
                " that takes its reports is told what all tenants asked",
            )
        found = await self._prefill.ask(lambda core: core.hottest(max_tokens))
        places = {0: 0}
        prefixes: list[HotPrefix] = []
        for number, (seed, heat, extends, edge) in enumerate(found, 1):
            scope = self._scopes.find(seed)
            if scope is not None:
                message = HotPrefix(scope=scope, hits=heat, extends=places[extends], packed=edge)
                prefixes.append(message)
                places[number] = len(prefixes)
        return prefixes
