"""A steady load of requests that share prefixes, for tests that break things under it."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

from radixgate.client import AsyncClient
from radixgate.errors import RadixgateError
from radixgate.stream import Completion

OUTPUT_TOKENS = 8

Outcome = Completion | RadixgateError


def prompts(vocab: int, families: int = 4, shared: int = 256, own: int = 40) -> list[list[int]]:
    """Endless in variety, few in beginnings: `families` shared prefixes with random endings."""
    rng = random.Random(7)
    heads = [[rng.randrange(8, vocab) for _ in range(shared)] for _ in range(families)]
    return [head + [rng.randrange(8, vocab) for _ in range(own)] for head in heads * 50]


class Load:
    """Requests in a closed loop until stopped, each with a deadline, so that none can hang.

    Args:
        addresses: gateways, used in turn.
        prompts: token ids, used in turn.
        clients: requests in flight.
    """

    def __init__(
        self, addresses: Sequence[str], prompts: Sequence[list[int]], clients: int = 4
    ) -> None:
        self.outcomes: list[Outcome] = []
        self._addresses = addresses
        self._prompts = prompts
        self._stop = False
        self._tasks = [asyncio.create_task(self._client(index)) for index in range(clients)]

    async def count(self, more: int) -> None:
        """Wait until `more` requests than now have ended."""
        target = len(self.outcomes) + more
        async with asyncio.timeout(60):
            while len(self.outcomes) < target:  # noqa: ASYNC110 - a test may poll
                await asyncio.sleep(0.02)

    async def stop(self) -> Counter[str]:
        """End the loop, wait for what is in flight; how many requests ended in which way."""
        self._stop = True
        await asyncio.gather(*self._tasks)
        return Counter(_kind(outcome) for outcome in self.outcomes)

    async def _client(self, index: int) -> None:
        number = index
        async with AsyncClient(self._addresses[index % len(self._addresses)]) as client:
            while not self._stop:
                prompt = self._prompts[number % len(self._prompts)]
                number += len(self._tasks)
                stream = client.generate(
                    prompt,
                    max_tokens=OUTPUT_TOKENS,
                    temperature=0,
                    ignore_eos=True,
                    timeout=30,
                )
                try:
                    self.outcomes.append(await stream.result())
                except RadixgateError as error:
                    self.outcomes.append(error)
                    await asyncio.sleep(0.05)


def _kind(outcome: Outcome) -> str:
    if isinstance(outcome, RadixgateError):
        return outcome.code.name
    assert len(outcome.ids) == OUTPUT_TOKENS, "a stream lost or repeated tokens"
    return "OK"
