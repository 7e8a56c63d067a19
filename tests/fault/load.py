"""A mixed load whose answers are known, so that every token of every stream can be checked.

Greedy answers and seeded samples do not depend on who computes them or with what else, so the
answers of an undisturbed fleet are those that every later stream must have, to its end or to where
it broke off.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from radixgate.client import AsyncClient
from radixgate.errors import RadixgateError, Unavailable
from radixgate.stream import AsyncStream, Piece

from tests.e2e.load import prompts

TRIES = 20
PAUSE_SECONDS = 0.1
TIMEOUT_SECONDS = 30.0


class Question(NamedTuple):
    """A prompt, and the options that it is asked with."""

    prompt: list[int]
    options: dict[str, Any]


class Answer(NamedTuple):
    """What streamed, to the end."""

    ids: tuple[int, ...]
    text: str


def mixed_questions(vocab: int, count: int = 200) -> list[Question]:
    """Of two tenants with the same shared beginnings; half greedy, half sampled; short and long."""
    rng = random.Random(11)
    return [
        Question(
            prompt,
            {
                "tenant": rng.choice(("acme", "beta")),
                "max_tokens": rng.choice((8, 30, 150)),
                "ignore_eos": True,
                **({"temperature": 0} if at % 2 else sampled(at)),
            },
        )
        for at, prompt in enumerate(prompts(vocab, families=6)[:count])
    ]


def sampled(seed: int) -> dict[str, Any]:
    """Options of a seeded sample.

    From few tokens: of thousands of draws from all of them, one falls where rounding decides.
    """
    return {"temperature": 1, "top_k": 8, "seed": seed}


async def undisturbed(address: str, questions: Sequence[Question]) -> list[Answer]:
    """The answer to each question by a fleet that is left alone."""
    together = asyncio.Semaphore(4)

    async def ask(client: AsyncClient, question: Question) -> Answer:
        async with together:
            stream = client.generate(question.prompt, timeout=60, **question.options)
            return _answer([piece async for piece in stream])

    async with AsyncClient(address) as client:
        return await asyncio.gather(*(ask(client, question) for question in questions))


class SteadyLoad:
    """Asks the questions, round and round, until stopped, and checks what streams.

    Each client does what one behind a load balancer would: UNAVAILABLE sends it to the next gateway
    with the same question. Every attempt has a deadline, so none can end without a status.

    Args:
        addresses: of the gateways.
        questions, answers: what is asked, and what the answers must be.
        clients: requests in flight.

    Attributes: how many requests ended in which way, `statuses`; how many were `repeated`.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        questions: Sequence[Question],
        answers: Sequence[Answer],
        clients: int = 6,
    ) -> None:
        self.statuses: Counter[str] = Counter()
        self.repeated = 0
        self._wrong: list[str] = []
        self._addresses = addresses
        self._known = list(zip(questions, answers, strict=True))
        self._streaming: set[AsyncStream] = set()
        self._stop = False
        self._tasks = [asyncio.create_task(self._client(at, clients)) for at in range(clients)]

    async def count(self, total: int) -> None:
        """Wait until so many requests in all have ended."""
        async with asyncio.timeout(2 * TIMEOUT_SECONDS):
            while self.statuses.total() < total:  # noqa: ASYNC110 - a test may poll
                await asyncio.sleep(0.02)

    async def more(self, count: int) -> None:
        """Wait until so many more than now have ended."""
        await self.count(self.statuses.total() + count)

    async def in_mid_stream(self) -> None:
        """Wait until half of the requests in flight have some of their answer, or for a second.

        Those that a part that hangs holds up may never have any.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                while 2 * len(self._streaming) < len(self._tasks):  # noqa: ASYNC110 - a test may poll
                    await asyncio.sleep(0.005)

    async def end_well(self) -> None:
        """Ask nothing more, and wait for what is in flight: each was answered, and rightly."""
        self._stop = True
        await asyncio.gather(*self._tasks)
        assert set(self.statuses) == {"OK"}, self.statuses
        assert not self._wrong, self._wrong

    async def _client(self, at: int, step: int) -> None:
        channels = [AsyncClient(address) for address in self._addresses]
        try:
            while not self._stop:
                question, answer = self._known[at % len(self._known)]
                self.statuses[await self._ask(channels, at, question, answer)] += 1
                at += step
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            await asyncio.gather(*(channel.close() for channel in channels))

    async def _ask(
        self, channels: Sequence[AsyncClient], at: int, question: Question, answer: Answer
    ) -> str:
        status = ""
        for attempt in range(TRIES):
            channel = channels[(at + attempt) % len(channels)]
            stream = channel.generate(question.prompt, timeout=TIMEOUT_SECONDS, **question.options)
            pieces: list[Piece] = []
            try:
                async for piece in stream:
                    pieces.append(piece)
                    self._streaming.add(stream)
            except Unavailable as error:
                status = error.code.name
                self.repeated += 1
                await asyncio.sleep(PAUSE_SECONDS)
            except RadixgateError as error:
                return f"{error.code.name}: {error}"
            else:
                self._check(stream, _answer(pieces), answer)
                return "OK"
            finally:
                self._streaming.discard(stream)
            ids, text = _answer(pieces)
            begun = Answer(answer.ids[: len(ids)], answer.text[: len(text)])
            self._check(stream, Answer(ids, text), begun)
        return status

    def _check(self, stream: AsyncStream, streamed: Answer, expected: Answer) -> None:
        if streamed != expected:
            self._wrong.append(f"{stream.started} {stream.finished} {streamed} for {expected}")


def _answer(pieces: Sequence[Piece]) -> Answer:
    return Answer(
        tuple(token for piece in pieces for token in piece.ids),
        "".join(piece.text for piece in pieces),
    )
