"""A load of shared prefixes that grows beyond what the workers' caches hold, and shrinks again.

    load = RisingLoad(address, families, own_tokens, between)
    await load.play([Leg(60, 4), Leg(60, 16), …])

Each family of prompts has a long beginning of its own and asks, on average, every so many seconds,
whatever else happens (an open loop: a slow fleet does not slow its clients).
"""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from radixgate.client import AsyncClient
from radixgate.errors import RadixgateError

OUTPUT_TOKENS = 8
TIMEOUT_SECONDS = 60.0


class Leg(NamedTuple):
    """So many seconds in which the number of families goes, evenly, to `families`."""

    seconds: float
    families: int


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. Times in seconds since the load began; `error` is empty when all went well."""

    at: float
    family: int
    ttft_seconds: float
    prompt_tokens: int
    cached_tokens: int
    worker: str
    error: str


class RisingLoad:
    """Args: a gateway's `address`; prompts of `families`; seconds `between` two of one family.

    Attributes: what was `asked`, in the order in which it ended; `active` families now.
    """

    def __init__(
        self, address: str, families: Sequence[Sequence[int]], own_tokens: int, between: float
    ) -> None:
        self.asked: list[Asked] = []
        self.active = 0
        self._address = address
        self._families = families
        self._own = own_tokens
        self._between = between
        self._rng = random.Random(3)
        self._begin = time.monotonic()

    @property
    def now(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._begin

    async def play(self, legs: Sequence[Leg]) -> None:
        """One leg after the other; returns when the last answer is there."""
        requests = set[asyncio.Task[None]]()
        async with AsyncClient(self._address) as client:
            for leg in legs:
                begin, first = self.now, self.active
                while (part := (self.now - begin) / leg.seconds) < 1:
                    self.active = round(first + (leg.families - first) * part)
                    await asyncio.sleep(self._rng.expovariate(max(1, self.active) / self._between))
                    family = self._rng.randrange(max(1, self.active))
                    requests.add(asyncio.create_task(self._ask(client, family)))
                self.active = leg.families
            await asyncio.gather(*requests)

    async def _ask(self, client: AsyncClient, family: int) -> None:
        vocab = max(self._families[family]) + 1
        own = [self._rng.randrange(8, vocab) for _ in range(self._own)]
        prompt = [*self._families[family], *own]
        at, begin, first = self.now, time.monotonic(), float("nan")
        stream = client.generate(
            prompt,
            max_tokens=OUTPUT_TOKENS,
            temperature=0,
            ignore_eos=True,
            timeout=TIMEOUT_SECONDS,
        )
        error, worker, cached, tokens = "", "", 0, 0
        try:
            async for piece in stream:
                if not tokens:
                    first = time.monotonic() - begin
                tokens += len(piece.ids)
            if tokens != OUTPUT_TOKENS:
                error = f"{tokens} tokens of {OUTPUT_TOKENS}"
        except RadixgateError as failure:
            error = str(failure)
        if stream.started is not None:
            worker, cached = stream.started.worker, stream.started.cached_tokens
        self.asked.append(Asked(at, family, first, len(prompt), cached, worker, error))
