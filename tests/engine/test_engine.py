"""The threaded engine: requests from one loop, events back to it, and what happens at the end."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from threading import Event as Flag
from threading import get_ident

import pytest
from torch import Tensor

from tests.engine.toys import BLOCK, STRIDE, Bench, Clock, expected, request, toy_forward
from worker.attention.base import PagedBatch
from worker.engine.engine import Engine
from worker.engine.events import Event, Failed, Finished, Output, Started
from worker.engine.request import Request


@asynccontextmanager
async def running(
    bench: Bench, on_failure: Callable[[BaseException], None] = lambda error: None
) -> AsyncIterator[Engine]:
    post = asyncio.get_running_loop().call_soon_threadsafe
    engine = Engine(bench.core, time.monotonic, post, on_failure)
    engine.start()
    try:
        yield engine
    finally:
        await asyncio.to_thread(engine.stop)


async def events(engine: Engine, asked: Request) -> list[Event]:
    queue: asyncio.Queue[Event] = asyncio.Queue()
    engine.submit(asked, queue.put_nowait)
    seen = [await queue.get()]
    while not isinstance(seen[-1], Finished | Failed):
        seen.append(await queue.get())
    return seen


async def test_many_at_once_each_get_their_own_answer() -> None:
    prompts = [[index] * (index + 1) for index in range(12)]
    async with running(Bench(num_blocks=64)) as engine:
        answers = await asyncio.gather(*(events(engine, request(prompt)) for prompt in prompts))
        assert not engine._sinks
    for prompt, answer in zip(prompts, answers, strict=True):
        assert isinstance(answer[0], Started)
        assert isinstance(answer[-1], Finished)
        tokens = [event.token for event in answer if isinstance(event, Output)]
        assert tokens == expected(prompt, 5)


async def test_sinks_are_called_in_the_loop_and_steps_are_not() -> None:
    threads: dict[str, int] = {}

    def forward(batch: PagedBatch) -> Tensor:
        threads["forward"] = get_ident()
        return toy_forward(batch)

    done = asyncio.Event()

    def sink(event: Event) -> None:
        threads["sink"] = get_ident()
        if isinstance(event, Finished):
            done.set()

    async with running(Bench(forward=forward)) as engine:
        engine.submit(request([1]), sink)
        await done.wait()
    assert threads["sink"] == get_ident() != threads["forward"]


async def test_a_cancelled_request_is_silent_and_holds_nothing() -> None:
    gate, entered = Flag(), Flag()

    def forward(batch: PagedBatch) -> Tensor:
        entered.set()
        assert gate.wait(10)
        return toy_forward(batch)

    heard: list[Event] = []
    async with running(Bench(forward=forward)) as engine:
        ticket = engine.submit(request([1], max_tokens=50), heard.append)
        await asyncio.to_thread(entered.wait)
        engine.cancel(ticket)
        engine.cancel(ticket)
        gate.set()
        await events(engine, request([2]))
        assert heard == []
        assert engine.load.running == engine.load.waiting == 0
        assert engine.load.kv.running_blocks == 0


async def test_broken_bookkeeping_ends_all_requests_and_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    told: list[BaseException] = []

    def commit(*_: object) -> None:
        raise AssertionError("a block has two owners")

    monkeypatch.setattr(bench.manager, "commit", commit)
    async with running(bench, told.append) as engine:
        for _ in range(2):
            last = (await events(engine, request([1])))[-1]
            assert isinstance(last, Failed)
            assert "a block has two owners" in last.message
        assert [str(error) for error in told] == ["a block has two owners"]
        assert not engine._sinks


async def test_integrity_is_checked_when_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, checked = Bench(), Flag()
    monkeypatch.setattr(bench.core, "check_integrity", checked.set)
    async with running(bench) as engine:
        await events(engine, request([1]))
        assert await asyncio.to_thread(checked.wait, 10)


async def test_pins_end_while_the_engine_is_idle() -> None:
    clock = Clock()
    bench, prompt = Bench(clock=clock), request([1] * BLOCK)
    async with running(bench) as engine, asyncio.timeout(10):
        await events(engine, prompt)
        pin = engine.ask(lambda core: core.pin(core.tokens(prompt), ttl=5))
        assert await asyncio.wrap_future(pin) == BLOCK
        for now, pinned in ((4.0, 1), (5.0, 0)):
            clock.now = now
            while engine.load.kv.pinned_blocks != pinned:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_requests_that_go_away_at_any_moment_leave_nothing_behind() -> None:
    """Cancelled before, while and after they wait, compute, lose their blocks or finish."""
    chance = random.Random(7)
    bench = Bench(num_blocks=14, max_running=3, token_budget=12)

    async def visit(engine: Engine, index: int) -> None:
        shared = list(range(chance.choice([0, STRIDE, 3 * STRIDE])))
        prompt = [*shared, *[50 + index % 40] * chance.randint(1, 6)]
        asked = request(prompt, chance.randint(1, 24))
        queue: asyncio.Queue[Event] = asyncio.Queue()
        ticket = engine.submit(asked, queue.put_nowait)
        stay = chance.choice([0, 0, 1, 2, 3, 8, 1000])
        heard: list[Event] = []
        while len(heard) < stay and not (heard and isinstance(heard[-1], Finished)):
            heard.append(await queue.get())
        engine.cancel(ticket)
        assert not any(isinstance(event, Failed) for event in heard)
        tokens = [event.token for event in heard if isinstance(event, Output)]
        assert tokens == expected(prompt, asked.max_tokens)[: len(tokens)]

    async with running(bench) as engine, asyncio.timeout(60):
        for wave in range(20):
            await asyncio.gather(*(visit(engine, wave * 20 + index) for index in range(20)))
        last = await events(engine, request([1]))
        assert isinstance(last[-1], Finished)
        assert not engine._sinks
    bench.core.check_integrity()
    assert bench.core.idle
    kv = bench.core.load().kv
    assert kv.running_blocks == 0
    assert kv.free_blocks + kv.cached_blocks == kv.total_blocks
    assert bench.metric("preemptions_total") > 0
    assert bench.metric("requests_total", outcome="cancelled") > 100
