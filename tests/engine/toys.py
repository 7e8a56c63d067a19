"""An engine without a model: its forward pass is arithmetic, so a test can foretell its tokens."""

import itertools
import math
from collections.abc import Callable, Iterable
from contextlib import nullcontext

import torch
from prometheus_client import CollectorRegistry
from radixgate.namespace import NamespaceSeed
from radixgate.prefix import pack_tokens
from tokenizers import Tokenizer, models
from torch import Tensor

from worker.attention.base import PagedBatch
from worker.engine.core import EngineConfig, EngineCore
from worker.engine.events import Event, Expired, Failed, Finished, Output
from worker.engine.metrics import EngineMetrics
from worker.engine.output import OutputText
from worker.engine.request import Request, SamplingParams
from worker.kv.events import KvEvents
from worker.kv.manager import KVManager
from worker.kv.memory import DEFAULT_POLICY, MemoryPolicy

VOCAB = 97
BLOCK = 4
STRIDE = 8
NAMESPACE = NamespaceSeed(1)
GREEDY = SamplingParams()


def toy_tokenizer() -> Tokenizer:
    """Token 7 is the word `7`."""
    return Tokenizer(models.WordLevel({str(token): token for token in range(VOCAB)}, unk_token="0"))


def next_token(token: int, position: int) -> int:
    """What the toy model says after `token` at `position`."""
    return (31 * token + 7 * position + 11) % VOCAB


def expected(prompt: list[int], count: int) -> list[int]:
    """The first `count` tokens of the toy model's answer."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens[-1], len(tokens) - 1))
    return tokens[len(prompt) :]


def toy_forward(batch: PagedBatch) -> Tensor:
    """Logits that make `next_token` the greedy choice."""
    rows = batch.sample_rows
    chosen = (31 * batch.token_ids[rows] + 7 * batch.positions[rows] + 11) % VOCAB
    return torch.nn.functional.one_hot(chosen, VOCAB).float()


def request(
    prompt: list[int],
    max_tokens: int = 5,
    *,
    namespace: NamespaceSeed = NAMESPACE,
    stop: tuple[str, ...] = (),
    stop_token_ids: Iterable[int] = (),
    sampling: SamplingParams = GREEDY,
    priority: int = 0,
    counted: bool = True,
    resumed: Iterable[int] = (),
) -> Request:
    return Request(
        request_id="test",
        namespace=namespace,
        prompt=pack_tokens(prompt),
        max_tokens=max_tokens,
        sampling=sampling,
        stop=stop,
        stop_token_ids=frozenset(stop_token_ids),
        priority=priority,
        counted=counted,
        resumed=pack_tokens(resumed),
    )


def manager(num_blocks: int = 32, policy: MemoryPolicy = DEFAULT_POLICY) -> KVManager:
    return KVManager(num_blocks, BLOCK, STRIDE, KvEvents(nullcontext()), policy)


class Ticks:
    """A clock that moves one second at each look."""

    def __init__(self) -> None:
        self._seconds = itertools.count()

    def __call__(self) -> float:
        return float(next(self._seconds))


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A core with its parts at hand, and all events by ticket."""

    def __init__(
        self,
        *,
        num_blocks: int = 32,
        max_running: int = 4,
        token_budget: int = 16,
        forward: Callable[[PagedBatch], Tensor] = toy_forward,
        kv: KVManager | None = None,
        tokenizer: Tokenizer | None = None,
        stride: int = STRIDE,
        clock: Callable[[], float] | None = None,
        chunk_seconds: float = 1e9,
    ) -> None:
        self.registry = CollectorRegistry()
        self._tokenizer = tokenizer or toy_tokenizer()
        self.manager = kv or manager(num_blocks)
        self.events: dict[int, list[Event]] = {}
        self.core = EngineCore(
            forward,
            self.manager,
            tokenizer=self._tokenizer,
            config=EngineConfig(stride, max_running, token_budget, chunk_seconds),
            metrics=EngineMetrics(self.registry, bytes_per_block=100),
            clock=clock or Ticks(),
            device=torch.device("cpu"),
        )

    def add(self, asked: Request, deadline: float = math.inf) -> int:
        ticket = len(self.events)
        self.events[ticket] = []
        text = None
        if asked.resumed:
            text = OutputText(self._tokenizer, asked)
            text.replay()
        self.core.add(ticket, asked, arrived=0.0, deadline=deadline, text=text)
        return ticket

    def step(self) -> None:
        for ticket, event in self.core.step():
            self.events[ticket].append(event)
        self.core.check_integrity()

    def run(self) -> None:
        for _ in range(10_000):
            if self.core.idle:
                return
            self.step()
        raise AssertionError("the engine does not come to an end")

    def output(self, ticket: int) -> list[int]:
        return [event.token for event in self.events[ticket] if isinstance(event, Output)]

    def text(self, ticket: int) -> str:
        return "".join(event.text for event in self.events[ticket] if isinstance(event, Output))

    def finished(self, ticket: int) -> Finished:
        last = self.events[ticket][-1]
        assert isinstance(last, Finished)
        return last

    def failed(self, ticket: int) -> Failed:
        last = self.events[ticket][-1]
        assert isinstance(last, Failed)
        return last

    def expired(self, ticket: int) -> Expired:
        last = self.events[ticket][-1]
        assert isinstance(last, Expired)
        return last

    def metric(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(f"radixgate_worker_{name}", labels)
        assert value is not None, name
        return value
