"""The hottest prefixes on the wire, each with the one scope that it may be computed in."""

from radixgate.v1.worker_pb2 import HotPrefix

from worker.serve.prefill import Prefill
from worker.serve.scopes import Scopes


class Heat:
    """Args: `prefill` asks the engine; `scopes` of late requests."""

    def __init__(self, prefill: Prefill, scopes: Scopes) -> None:
        self._prefill = prefill
        self._scopes = scopes

    async def hottest(self, max_tokens: int) -> list[HotPrefix]:
        """Hottest first, `max_tokens` together at most; without those whose scope is forgotten.

        Raises:
            RefusedError: INTERNAL, the engine is broken.
        """
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
