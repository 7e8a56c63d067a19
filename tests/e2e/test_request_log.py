"""`radixgate gateway --request-log`: two processes write what the simulator reads."""

import asyncio
import signal
from pathlib import Path

import pytest
from radixgate.prefix import pack_tokens
from radixgate.v1.gateway_pb2_grpc import GatewayStub
from radixgate.v1.generate_pb2 import GenerateRequest, Sampling, Stopping

from sim.trace.formats import open_trace
from tests.e2e.processes import Fleet, free_port
from tests.e2e.test_processes import connections

pytestmark = pytest.mark.slow

CHATS = 20
TURNS = 3


async def say(stub: GatewayStub, prompt: list[int]) -> list[int]:
    """The answer to a prompt."""
    request = GenerateRequest(
        packed=pack_tokens(prompt),
        sampling=Sampling(temperature=0),
        stopping=Stopping(max_tokens=70, ignore_eos=True),
    )
    return [id_ async for each in stub.Generate(request, timeout=60) for id_ in each.tokens.ids]


async def chat(stub: GatewayStub, number: int) -> None:
    """Some turns, each with all that was said before."""
    said = [10, *(number + 20 for _ in range(99))]
    for _ in range(TURNS):
        said += await say(stub, said)
        said += range(40, 60)


async def test_what_two_processes_served_is_a_trace(
    fleet: Fleet, tiny_llama: Path, tmp_path: Path
) -> None:
    file, port = tmp_path / "requests.jsonl", free_port()
    options = ("--processes", "2", "--request-log", str(file))
    gateway = await asyncio.to_thread(fleet.gateway(port, None, *options).start)
    await asyncio.to_thread(fleet.worker("a", tiny_llama, [port]).start)
    async with connections(f"127.0.0.1:{port}") as stubs:
        await asyncio.gather(*map(chat, stubs, range(CHATS)))
    gateway.signal(signal.SIGTERM)
    await asyncio.to_thread(gateway.wait)
    requests = open_trace(file).requests
    assert len(requests) == CHATS * TURNS
    assert sorted({each.prompt.tokens for each in requests}) == [100, 190, 280]
    assert {each.output_tokens for each in requests} == {70}
    for each in requests:
        if each.prompt.tokens == 100:
            assert each.after is None
            continue
        assert each.after is not None
        before = requests[each.after]
        assert before.prompt.tokens == each.prompt.tokens - 90
        assert before.output
        said = before.prompt.packed() + before.output.packed()
        assert each.prompt.packed().startswith(said[: len(said) // 256 * 256])
