"""Measures a live worker that has nothing else to do, and fits the formula of its steps.

1. Prompts alone, of rising length: their time to the first token, as the worker itself measured it,
   and what it takes beyond that until the token is here; by way of its gateway if there is one.
2. Answers to 1, 2, 4, ... of these prompts at once, which are cached now, so that all of them go on
   at the same time: the time from token to token, as it arrives here.

Every point is a median, so that a hiccup of the machine is none of the worker. A step with prompts
and generations is not measured: the formula adds them up.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import grpc
from radixgate.limits import MAX_MESSAGE_BYTES
from radixgate.prefix import pack_tokens
from radixgate.v1.gateway_pb2_grpc import GatewayStub
from radixgate.v1.generate_pb2 import Finished, GenerateRequest, Sampling, Scope, Stopping
from radixgate.v1.worker_pb2 import DescribeRequest, ModelCard
from radixgate.v1.worker_pb2_grpc import WorkerStub

from sim.hardware.fit import Fit, Measured, fit
from sim.hardware.setup import WorkerSetup
from sim.hardware.step_time import StepWork
from worker.kv.policy import DEFAULT_EVICTION

if TYPE_CHECKING:
    from radixgate.v1.gateway_pb2_grpc import GatewayAsyncStub
    from radixgate.v1.worker_pb2_grpc import WorkerAsyncStub

_SHORTEST_PROMPT: Final = 32
_LENGTHS: Final = 2  # from one length to the next
_CROWDS: Final = 4  # from one number of answers at once to the next
_REPEATS: Final = 3
_MOST_AT_ONCE: Final = 32

# Of a prompt that is measured: as in any answer, a step follows while its first token is under way.
_MEASURED_OUTPUT: Final = 2

# Tokens of an answer: as many as take that long, within bounds.
_ANSWER_SECONDS: Final = 0.25
_LEAST_OUTPUT: Final = 24
_MOST_OUTPUT: Final = 128

# For the prompts of one length; longer ones are left out once a single one takes that long.
_SECONDS: Final = 4.0

# For the answers to a crowd, after which it is not asked again.
_CROWD_SECONDS: Final = 1.0

_CALL_SECONDS: Final = 120.0


class CalibrationError(Exception):
    """The worker cannot be measured; the message is one clear line."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a worker does not tell; by default that of `radixgate worker`.

    Args: as in `WorkerSetup`.
    """

    max_running: int = 32
    token_budget: int = 256
    chunk_seconds: float = 0.2
    eviction: str = DEFAULT_EVICTION


WORKER_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Calibration:
    """Args: the worker's `setup`; how well the formula fits, `fit`; and to what, `measured`."""

    setup: WorkerSetup
    fit: Fit
    measured: tuple[Measured, ...]

    def notes(self) -> dict[str, object]:
        """For the file of the setup."""
        return {
            "typical_error": self.fit.typical_error,
            "worst_error": self.fit.worst_error,
            "measured": [
                {
                    **each.work._asdict(),
                    "steps": each.steps,
                    "seconds": each.seconds,
                    "error": error,
                }
                for each, error in zip(self.measured, self.fit.errors, strict=True)
            ],
        }


def calibrate(
    address: str,
    limits: Limits = WORKER_LIMITS,
    tell: Callable[[str], None] = lambda _: None,
    *,
    gateway: str | None = None,
) -> Calibration:
    """Measure the worker at `address`, `host:port`; takes a minute or two.

    Args: what it does not tell, `limits`; `tell` is called with each step of the work; `gateway`,
    `host:port`, through which requests come, so that what they take there counts too.

    Raises:
        CalibrationError: one of them does not answer, or the worker cannot be measured.
    """
    try:
        return asyncio.run(_calibrate(address, limits, tell, gateway))
    except ValueError as error:
        raise CalibrationError(f"the worker at {address} cannot be fitted: {error}") from None


async def _calibrate(
    address: str, limits: Limits, tell: Callable[[str], None], gateway: str | None
) -> Calibration:
    async with _connected("worker", address) as channel:
        stub = WorkerStub(channel)
        card = await stub.Describe(DescribeRequest(), timeout=_CALL_SECONDS)
        subject = _Subject(stub, card)
        measured = await _measure(subject, limits, tell)
    beyond: Sequence[float] = subject.beyond
    if gateway is not None:
        lengths = [each.work.prompt_tokens for each in measured if each.work.prompt_tokens]
        async with _connected("gateway", gateway) as channel:
            beyond = await _beyond(_Subject(GatewayStub(channel), card), lengths)
    request_seconds = max(0.0, median(beyond))
    tell(f"a request, beside its steps: {request_seconds * 1000:.1f} ms")
    fitted = fit(measured)
    setup = WorkerSetup(
        name=f"{card.model}, KV {card.kv_format}",
        num_blocks=card.num_blocks,
        step_time=fitted.step_time,
        max_running=limits.max_running,
        token_budget=limits.token_budget,
        chunk_seconds=limits.chunk_seconds,
        block_size=card.block_size,
        eviction=limits.eviction,
        request_seconds=request_seconds,
    )
    return Calibration(setup, fitted, tuple(measured))


@asynccontextmanager
async def _connected(what: str, address: str) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to it, whose errors name it."""
    options = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]
    try:
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            yield channel
    except grpc.aio.AioRpcError as error:
        raise CalibrationError(
            f"the {what} at {address} failed: {error.code().name}: {error.details()}"
        ) from None


async def _beyond(subject: "_Subject", lengths: Iterable[int]) -> Sequence[float]:
    """Seconds beyond waiting and steps, of prompts of these `lengths`."""
    for length in lengths:
        for _ in range(_REPEATS):
            await subject.compute(length)
    return subject.beyond


async def _measure(
    subject: "_Subject", limits: Limits, tell: Callable[[str], None]
) -> list[Measured]:
    """Prompts of rising length, and answers to them."""
    measured: list[Measured] = []
    length, longest = _SHORTEST_PROMPT, subject.longest_prompt
    if longest < _LENGTHS * length:
        raise CalibrationError(
            f"prompts may have {longest} tokens here, by context and KV memory; calibrating needs "
            f"{_LENGTHS * length}; give it more KV (--kv-memory)"
        )
    _, seconds = await subject.compute(length)
    output_tokens = min(_MOST_OUTPUT, max(_LEAST_OUTPUT, int(_ANSWER_SECONDS / seconds)))
    while True:
        first, seconds = await subject.compute(length)
        fitting = min(_MOST_AT_ONCE, limits.max_running, subject.at_once(length))
        count = min(fitting, max(_REPEATS, int(_SECONDS / seconds)))
        computed = [(first, seconds)] + [await subject.compute(length) for _ in range(1, count)]
        steps = -(-length // limits.token_budget)
        alone = median(each for _, each in computed)
        measured.append(Measured(StepWork(length, length * length / 2, 0, 0), steps, alone))
        tell(f"prompts of {length} tokens: {alone * 1000:.1f} ms")
        for crowd in _crowds(count):
            prompts = [prompt for prompt, _ in computed[:crowd]]
            step = await _step_seconds(subject, prompts, output_tokens)
            context = crowd * (length + output_tokens // 2)
            measured.append(Measured(StepWork(0, 0.0, crowd, context), 1, step))
            tell(f"{crowd} answers after {length} tokens: {step * 1000:.1f} ms a token")
        if seconds > _SECONDS or length == longest:
            return measured
        length = min(length * _LENGTHS, longest)


async def _step_seconds(subject: "_Subject", prompts: Sequence[bytes], output_tokens: int) -> float:
    """Of a step that goes on with answers to these `prompts`.

    Raises:
        CalibrationError: they never ran at the same time.
    """
    found: list[float] = []
    spent = 0.0
    for _ in range(_REPEATS):
        began = time.monotonic()
        found += await subject.step_seconds(prompts, output_tokens)
        spent += time.monotonic() - began
        if found and spent > _CROWD_SECONDS:
            break
    if not found:
        raise CalibrationError(
            f"{len(prompts)} answers to cached prompts did not run at the same time; has the "
            "worker other work, or less room for sequences than was said (max running)?"
        )
    return median(found)


def _crowds(most: int) -> Iterator[int]:
    crowd = 1
    while crowd <= most:
        yield crowd
        crowd *= _CROWDS


class _Arrival(NamedTuple):
    """A message with tokens: when it came, and how many tokens they are so far."""

    at: float
    tokens: int


@dataclass(slots=True)
class _Subject:
    """What is measured, in a namespace of its own, so that nothing is cached before.

    Attributes: `stub`, of a worker or of its gateway; the `card` of the worker; `beyond`, of each
    prompt that was computed the seconds that its first token took beyond waiting and steps.
    """

    stub: "WorkerAsyncStub | GatewayAsyncStub"
    card: ModelCard
    beyond: list[float] = field(default_factory=list)
    scope: Scope = field(default_factory=lambda: Scope(salt=secrets.token_hex(8)))
    rng: Random = field(default_factory=lambda: Random(0))

    @property
    def longest_prompt(self) -> int:
        """Tokens that leave room for an answer, in half of the KV memory."""
        return max(0, min(self.card.max_context, self._half_of_kv) - _MOST_OUTPUT)

    def at_once(self, length: int) -> int:
        """Prompts of `length` that have room there, with their answers."""
        return self._half_of_kv // (length + _MOST_OUTPUT)

    @property
    def _half_of_kv(self) -> int:
        return self.card.num_blocks * self.card.block_size // 2

    async def compute(self, length: int) -> tuple[bytes, float]:
        """A prompt that is cached from now on, and the seconds that its steps took."""
        prompt = pack_tokens([self.rng.randrange(self.card.vocab_size) for _ in range(length)])
        began = time.monotonic()
        arrivals, finished = await self._generate(prompt, _MEASURED_OUTPUT)
        self.beyond.append(arrivals[0].at - began - finished.ttft_seconds)
        return prompt, finished.ttft_seconds - finished.queue_seconds

    async def step_seconds(self, prompts: Sequence[bytes], output_tokens: int) -> list[float]:
        """From token to token, on average while all of the cached `prompts` are answered.

        One number, or none when they were not answered at the same time.
        """
        answers = await asyncio.gather(*(self._generate(each, output_tokens) for each in prompts))
        streams = [arrivals for arrivals, _ in answers]
        begin = max(arrivals[0].at for arrivals in streams)
        end = min(arrivals[-1].at for arrivals in streams)
        # NOTE: messages, since tokens that came while this side was slow share one.
        spans = [[each for each in arrivals if begin <= each.at <= end] for arrivals in streams]
        spans = [span for span in spans if len(span) > 1]
        seconds = sum(span[-1].at - span[0].at for span in spans)
        return [seconds / sum(span[-1].tokens - span[0].tokens for span in spans)] if spans else []

    async def _generate(self, prompt: bytes, output_tokens: int) -> tuple[list[_Arrival], Finished]:
        request = GenerateRequest(
            request_id="calibrate",
            model=self.card.model,
            packed=prompt,
            scope=self.scope,
            sampling=Sampling(temperature=0, seed=0),
            stopping=Stopping(max_tokens=output_tokens, ignore_eos=True),
        )
        arrivals: list[_Arrival] = []
        tokens, finished = 0, Finished()
        async for response in self.stub.Generate(request, timeout=_CALL_SECONDS):
            if response.HasField("tokens"):
                tokens += len(response.tokens.ids)
                arrivals.append(_Arrival(time.monotonic(), tokens))
            elif response.HasField("finished"):
                finished = response.finished
        return arrivals, finished
