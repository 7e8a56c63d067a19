"""A worker that answers at once: `python -m bench.gateway.double [--gateway ADDRESS]`.

It describes itself and reports as a worker does, with a worker's own reporter, but computes
nothing: each request gets Started, as many messages of one token as it asks for, and Finished, all
of bytes that were made before. With `--evict SECONDS` it evicts one boundary and stores another,
again and again after about so long, and prints the `seq` of the Delta that is going to say so, and
the time in nanoseconds of the monotonic clock. The first line it prints is its address.
"""

import argparse
import asyncio
import random
import time
from collections import deque
from collections.abc import Coroutine
from contextlib import nullcontext
from typing import Any, Final

import grpc.aio
from radixgate.namespace import Namespace
from radixgate.prefix import TOKEN_BYTES, PrefixHash, boundary_hashes, pack_tokens
from radixgate.serving import SERVER_OPTIONS
from radixgate.v1.generate_pb2 import (
    FINISH_REASON_LENGTH,
    Finished,
    GenerateRequest,
    GenerateResponse,
    Started,
    Tokens,
)
from radixgate.v1.sync_pb2 import Hello
from radixgate.v1.worker_pb2 import DESCRIPTOR, Golden, ModelCard
from tokenizers import Tokenizer

from bench.gateway.workload import PROMPT_TOKENS, SHARED, STRIDE
from worker.engine.stats import EngineLoad
from worker.kv.events import KvEvents, Reason
from worker.kv.manager import KVStats
from worker.model.pull import DEFAULT_MODEL, pull
from worker.report import Reporter

NAME: Final = "double"
SERVICE: Final = DESCRIPTOR.services_by_name["Worker"].full_name
BLOCK_SIZE, BLOCKS = 16, 1_000_000
TEXT: Final = "The capital of France is"
EVICTABLE: Final = 1_000

COLD, WARM, TOKENS, FINISHED = (
    response.SerializeToString()
    for response in (
        GenerateResponse(started=Started(worker=NAME, prompt_tokens=PROMPT_TOKENS)),
        GenerateResponse(
            started=Started(
                worker=NAME, prompt_tokens=PROMPT_TOKENS, cached_tokens=len(SHARED) // TOKEN_BYTES
            )
        ),
        GenerateResponse(tokens=Tokens(ids=[1_000], text=" time")),
        GenerateResponse(finished=Finished(reason=FINISH_REASON_LENGTH)),
    )
)


async def generate(request: bytes, context: Any) -> None:
    """Answer."""
    asked = GenerateRequest.FromString(request)
    await context.write(WARM if asked.packed.startswith(SHARED) else COLD)
    for _ in range(asked.stopping.max_tokens):
        await context.write(TOKENS)
    await context.write(FINISHED)


def make_card(epoch: int) -> ModelCard:
    """Of the default model's tokenizer; no chat template, and a fingerprint of its own."""
    tokenizer_json = (pull(DEFAULT_MODEL) / "tokenizer.json").read_bytes()
    tokenizer = Tokenizer.from_buffer(tokenizer_json)
    packed = pack_tokens(range(2 * STRIDE))
    hashes = boundary_hashes(packed, STRIDE, Namespace(NAME).seed())
    return ModelCard(
        worker=NAME,
        epoch=epoch,
        model=NAME,
        fingerprint=NAME,
        vocab_size=tokenizer.get_vocab_size(),
        max_context=32_768,
        block_size=BLOCK_SIZE,
        stride=STRIDE,
        num_blocks=BLOCKS,
        tokenizer_json=tokenizer_json,
        golden=Golden(
            tokenized=[Golden.Tokenized(text=TEXT, ids=tokenizer.encode(TEXT).ids)],
            hashed=[Golden.Hashed(packed=packed, hashes=hashes)],
        ),
    )


def load() -> tuple[EngineLoad, bool]:
    """Of a worker that always has room."""
    return (
        EngineLoad(
            waiting=0,
            running=0,
            max_running=100_000,
            backlog_tokens=0,
            backlog_work=0.0,
            attention_tokens=0,
            prefill_tokens_per_second=1e6,
            prefill_work_per_second=1e6,
            decode_tokens_per_second=1e6,
            itl_ms=1.0,
            kv=KVStats(BLOCKS, BLOCKS, 0, 0, 0, 0, 0, 0, 0),
        ),
        False,
    )


async def evict(events: KvEvents, every: float) -> None:
    """Give up one boundary every so many seconds, the oldest; never returns."""
    rng = random.Random(1)
    held = deque(PrefixHash(rng.getrandbits(64)) for _ in range(EVICTABLE))
    events.stored(held)
    while True:
        # NOTE: not in step with the reporter, nor with the gateways.
        await asyncio.sleep(rng.uniform(0.5, 1.5) * every)
        oldest, newest = held.popleft(), PrefixHash(rng.getrandbits(64))
        now = time.monotonic_ns()
        events.removed([oldest], Reason.CAPACITY)
        events.stored([newest])
        held.append(newest)
        print(events.reported[0] + 1, now, flush=True)


async def serve(gateway: str | None, every: float | None) -> None:
    """Serve, and report to `gateway`; never returns."""
    card = make_card(epoch=time.time_ns())

    async def describe(_: bytes, __: Any) -> bytes:
        return card.SerializeToString()

    server = grpc.aio.server(options=SERVER_OPTIONS)
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Describe": grpc.unary_unary_rpc_method_handler(describe),
        "Generate": grpc.unary_stream_rpc_method_handler(generate),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    print(address, flush=True)

    events = KvEvents(nullcontext())
    events.stored(boundary_hashes(SHARED, STRIDE, Namespace(NAME).seed()))
    shape = {"block_size": BLOCK_SIZE, "stride": STRIDE, "num_blocks": BLOCKS}
    hello = Hello(
        worker=NAME, epoch=card.epoch, address=address, model=NAME, fingerprint=NAME, **shape
    )
    endless: list[Coroutine[Any, Any, Any]] = [server.wait_for_termination()]
    if gateway:
        reporter = Reporter(hello, events, load, [gateway], random.Random(2))
        endless.append(reporter.run())
    if every:
        endless.append(evict(events, every))
    await asyncio.gather(*endless)


def main() -> None:
    parser = argparse.ArgumentParser(description="A worker that answers at once.")
    parser.add_argument("--gateway", metavar="ADDRESS", help="to report to")
    parser.add_argument("--evict", type=float, metavar="SECONDS")
    options = parser.parse_args()
    asyncio.run(serve(options.gateway, options.evict))


if __name__ == "__main__":
    main()
