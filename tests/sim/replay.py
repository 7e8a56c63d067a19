"""Sends a trace to a live gateway, at its times, and writes down what a client sees."""

import asyncio
import time
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import numpy as np
from radixgate.client import AsyncClient

from sim.request import Content, Request, Trace

CALL_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Answered:
    """Args:
    worker: that served it.
    prompt_tokens, cached_tokens: as the worker counted them.
    ttft_seconds: from asking to the first token.
    gaps: seconds from one message with tokens to the next.
    """

    worker: str
    prompt_tokens: int
    cached_tokens: int
    ttft_seconds: float
    gaps: tuple[float, ...]


def packed(content: Content, vocab_size: int) -> bytes:
    """Token ids below `vocab_size`, equal where `content` says that tokens are.

    Each block of tokens is drawn from its id, so that different ids differ from their first tokens
    on, but for one in `vocab_size`.
    """
    blocks = {
        each: Random(each).choices(range(vocab_size), k=content.block_tokens)
        for each in set(content.ids)
    }
    ids = np.array([blocks[each] for each in content.ids], "<u4").reshape(-1)
    return ids[: content.tokens].tobytes()


async def replay(trace: Trace, address: str, vocab_size: int) -> list[Answered]:
    """The answers, by number of the request.

    Outputs are what the model generates, as long as the trace says; no later prompt has them.

    Args:
        trace: to send.
        address: of a gateway.
        vocab_size: of its model.
    """
    # NOTE: before the first is sent, since it takes longer than requests are apart.
    prompts = [packed(request.prompt, vocab_size) for request in trace.requests]
    ended = [asyncio.Event() for _ in trace.requests]
    async with AsyncClient(address) as client:
        begin = time.monotonic()

        async def play(request: Request) -> Answered:
            if request.after is not None:
                await ended[request.after].wait()
                await asyncio.sleep(request.think)
            await asyncio.sleep(begin + request.at - time.monotonic())
            try:
                return await _ask(client, request, prompts[request.number])
            finally:
                ended[request.number].set()

        return await asyncio.gather(*map(play, trace.requests))


async def _ask(client: AsyncClient, request: Request, prompt: bytes) -> Answered:
    asked = time.monotonic()
    stream = client.generate(
        prompt,
        max_tokens=request.output_tokens,
        ignore_eos=True,
        temperature=0,
        tenant=request.tenant,
        priority=request.priority,
        timeout=CALL_SECONDS,
    )
    arrivals = [time.monotonic() async for _ in stream]
    assert stream.started
    return Answered(
        worker=stream.started.worker,
        prompt_tokens=stream.started.prompt_tokens,
        cached_tokens=stream.started.cached_tokens,
        ttft_seconds=arrivals[0] - asked,
        gaps=tuple(later - earlier for earlier, later in pairwise(arrivals)),
    )
