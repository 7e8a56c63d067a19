"""A worker that takes over another's request sends the rest of the whole, whatever the cut."""

from pathlib import Path

import grpc
import grpc.aio
import pytest
from radixgate.prefix import pack_tokens
from radixgate.v1.generate_pb2 import (
    FINISH_REASON_STOP,
    Finished,
    GenerateRequest,
    GenerateResponse,
    Sampling,
    Stopping,
)
from radixgate.v1.worker_pb2_grpc import WorkerStub

from tests.worker.test_worker import collect, serve
from worker.main import WorkerConfig

pytestmark = pytest.mark.slow

PROMPT = range(3, 103)


@pytest.fixture
def config(tiny_llama: Path) -> WorkerConfig:
    return WorkerConfig(tiny_llama, device="cpu", kv_memory=1 << 20, threads=1, worker_id="w")


def asked(stop: str = "", resumed: tuple[int, ...] = ()) -> GenerateRequest:
    return GenerateRequest(
        request_id="r",
        packed=pack_tokens([*PROMPT, *resumed]),
        sampling=Sampling(temperature=1, seed=7),
        stopping=Stopping(max_tokens=24, ignore_eos=True, stop=[stop] if stop else []),
        resumed_tokens=len(resumed),
    )


def output(messages: list[GenerateResponse]) -> tuple[tuple[int, ...], str]:
    """All tokens of a stream and their text."""
    ids = tuple(token for message in messages for token in message.tokens.ids)
    return ids, "".join(message.tokens.text for message in messages)


def end(messages: list[GenerateResponse]) -> Finished:
    """The last message without what depends on the worker."""
    finished = messages[-1].finished
    return Finished(
        reason=finished.reason,
        stop=finished.stop,
        prompt_tokens=finished.prompt_tokens,
        output_tokens=finished.output_tokens,
    )


async def check_every_cut(stub: WorkerStub, stop: str) -> Finished:
    whole = await collect(stub, asked(stop))
    ids, text = output(whole)
    # NOTE: tokens that came together share a text, so only between messages it is known exactly.
    delivered = {len(output(whole[:at])[0]): output(whole[:at])[1] for at in range(len(whole))}
    for cut in range(1, len(ids)):
        rest = await collect(stub, asked(stop, ids[:cut]))
        assert rest[0].started.prompt_tokens == len(PROMPT)
        assert rest[0].started.cached_tokens <= len(PROMPT)
        assert output(rest)[0] == ids[cut:]
        assert text.endswith(output(rest)[1])
        if cut in delivered:
            assert delivered[cut] + output(rest)[1] == text
        assert end(rest) == end(whole)
        assert not rest[-1].finished.HasField("misses")
    (only,) = await collect(stub, asked(stop, ids))
    assert end([only]) == end(whole)
    return end(whole)


async def test_the_rest_is_what_it_would_have_been(config: WorkerConfig) -> None:
    async with serve(config) as (_, stub):
        _, text = output(await collect(stub, asked()))
        assert (await check_every_cut(stub, "")).output_tokens == 24
        stop = text[12:16]
        finished = await check_every_cut(stub, stop)
        assert (finished.reason, finished.stop) == (FINISH_REASON_STOP, stop)


async def test_output_that_goes_on_after_its_end_is_refused(config: WorkerConfig) -> None:
    async with serve(config) as (_, stub):
        ids, _ = output(await collect(stub, asked()))
        request = asked(resumed=ids)
        request.stopping.stop_token_ids.append(ids[3])
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await collect(stub, request)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "ends with token 4 of them" in str(refused.value.details())
