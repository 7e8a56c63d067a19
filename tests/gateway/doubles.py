"""A worker that speaks the protocol and computes nothing: its answers are scripts of the test."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import grpc.aio
from radixgate.digest import SetDigest
from radixgate.namespace import Namespace
from radixgate.prefix import boundary_hashes, pack_hashes, pack_tokens, unpack_tokens
from radixgate.v1.generate_pb2 import (
    FINISH_REASON_LENGTH,
    Finished,
    GenerateRequest,
    GenerateResponse,
    Started,
    Tokens,
)
from radixgate.v1.sync_pb2 import Ack, Delta, Digest, Hello, Load, Report, Snapshot
from radixgate.v1.sync_pb2_grpc import KvSyncStub
from radixgate.v1.worker_pb2 import Golden, ModelCard
from radixgate.v1.worker_pb2_grpc import WorkerServicer, add_WorkerServicer_to_server
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.models import CHAT_TEMPLATE

STRIDE, BLOCK_SIZE = 64, 16
VOCABULARY = ["<|im_start|>", "<|im_end|>", "user", "assistant", "?", *map(str, range(1000))]
MAX_CONTEXT = 4096

Script = Callable[[GenerateRequest, "ScriptedWorker"], AsyncIterator[GenerateResponse]]


def make_card(model: str = "words", **changes: Any) -> ModelCard:
    """A model whose tokens are words, golden vectors included."""
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(VOCABULARY)}, "?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(VOCABULARY[:2])
    packed = pack_tokens(range(2 * STRIDE))
    fields: dict[str, Any] = {
        "model": model,
        "fingerprint": f"fingerprint of {model}",
        "vocab_size": len(VOCABULARY),
        "max_context": MAX_CONTEXT,
        "block_size": BLOCK_SIZE,
        "stride": STRIDE,
        "num_blocks": 1000,
        "tokenizer_json": tokenizer.to_str().encode(),
        "chat_template": CHAT_TEMPLATE,
    } | changes
    seed = Namespace(fields["fingerprint"]).seed()
    chat = '[{"role": "user", "content": "1 2"}]'
    golden = Golden(
        tokenized=[Golden.Tokenized(text="1 x 2", ids=[6, 4, 7])],
        rendered=[
            Golden.Rendered(
                messages_json=chat,
                text="<|im_start|>user\n1 2<|im_end|>\n<|im_start|>assistant\n",
            )
        ],
        hashed=[
            Golden.Hashed(packed=packed, hashes=boundary_hashes(packed, fields["stride"], seed))
        ],
    )
    return ModelCard(**{"golden": golden} | fields)


class Abort(Exception):  # noqa: N818 (an order, not an error)
    """What a script raises to end the call with a status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


async def echo(
    request: GenerateRequest, worker: "ScriptedWorker"
) -> AsyncIterator[GenerateResponse]:
    """Two tokens, one at a time."""
    prompt_tokens = len(unpack_tokens(request.packed))
    started = Started(
        request_id=request.request_id,
        worker=worker.name,
        prompt_tokens=prompt_tokens,
        cached_tokens=worker.cached(request),
    )
    yield GenerateResponse(started=started)
    for token in (7, 8):
        yield GenerateResponse(tokens=Tokens(ids=[token], text=VOCABULARY[token] + " "))
    yield GenerateResponse(
        finished=Finished(reason=FINISH_REASON_LENGTH, prompt_tokens=prompt_tokens, output_tokens=2)
    )


class ScriptedWorker(WorkerServicer):
    """Serves gRPC, and reports to a gateway what the test says that it holds."""

    def __init__(
        self, name: str, card: ModelCard, script: Script = echo, host: str = "127.0.0.1"
    ) -> None:
        self.name = name
        self.host = host
        self.card = ModelCard()
        self.card.CopyFrom(card)
        self.card.worker = name
        self.card.epoch = time.time_ns()
        self.script = script
        self.load = Load(
            max_running=8, free_blocks=1000, total_blocks=1000, prefill_tokens_per_second=1000
        )
        self.requests: list[GenerateRequest] = []
        self.cancelled = asyncio.Event()
        self.address = ""
        self.resyncs = 0
        self.sync_error: grpc.aio.AioRpcError | None = None
        self._held: set[int] = set()
        self._seq = 0
        self._reports: asyncio.Queue[Report] = asyncio.Queue()

    async def Describe(self, request, context):  # type: ignore[no-untyped-def]
        return self.card

    async def Generate(self, request, context):  # type: ignore[no-untyped-def]
        self.requests.append(request)
        try:
            async for response in self.script(request, self):
                yield response
        except Abort as abort:
            await context.abort(abort.code, abort.details)
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.set()
            raise

    def cached(self, request: GenerateRequest) -> int:
        """Prompt tokens that this worker holds."""
        hashes = self.boundaries(request.packed)
        return STRIDE * sum(name in self._held for name in hashes)

    def boundaries(self, packed: bytes) -> Sequence[int]:
        """Hashes of a prompt in the default scope."""
        return boundary_hashes(packed, STRIDE, Namespace(self.card.fingerprint).seed())

    def store(self, packed: bytes) -> None:
        """Hold a prompt, and report it."""
        new = [name for name in self.boundaries(packed) if name not in self._held]
        self._held.update(new)
        self._seq += 1
        delta = Delta(seq=self._seq, stored=pack_hashes(new), digest=self._digest())
        self._reports.put_nowait(Report(delta=delta))

    def add_to(self, server: grpc.aio.Server) -> None:
        """Let `server` call this worker."""
        add_WorkerServicer_to_server(self, server)

    @asynccontextmanager
    async def running(self, gateway: str | None = None) -> AsyncIterator["ScriptedWorker"]:
        """Serve, and report to `gateway` if there is one."""
        async with AsyncExitStack() as stack:
            server = grpc.aio.server()
            self.add_to(server)
            self.address = f"{self.host}:{server.add_insecure_port(f'{self.host}:0')}"
            await server.start()
            stack.push_async_callback(server.stop, None)
            if gateway is not None:
                reporting = asyncio.create_task(self.report_to(gateway))
                stack.callback(reporting.cancel)
            self.stop: Callable[[], Awaitable[None]] = stack.aclose
            yield self

    async def report_to(self, gateway: str) -> None:
        """Report until that ends."""
        card = self.card
        hello = Hello(
            worker=self.name,
            epoch=card.epoch,
            address=self.address,
            model=card.model,
            fingerprint=card.fingerprint,
            block_size=card.block_size,
            stride=card.stride,
            num_blocks=card.num_blocks,
            seq=self._seq,
            hottest_key=self.name.encode(),
        )
        async with grpc.aio.insecure_channel(gateway) as channel:
            stream = KvSyncStub(channel).Sync()
            try:
                await stream.write(Report(hello=hello))
                answers = asyncio.create_task(self._answer(stream))
                # NOTE: writing to a stream that has ended is a wrong state; its end is read below.
                with suppress(asyncio.InvalidStateError):
                    await self._write_reports(stream, answers)
                await answers
            except grpc.aio.AioRpcError as error:
                self.sync_error = error

    async def _write_reports(self, stream: Any, answers: asyncio.Future[None]) -> None:
        while not answers.done():
            await stream.write(Report(load=self._current_load()))
            try:
                async with asyncio.timeout(0.1):
                    report = await self._reports.get()
            except TimeoutError:
                continue
            # NOTE: outside, since a write that is cancelled ends the stream.
            await stream.write(report)

    async def _answer(self, stream: Any) -> None:
        """Do what a gateway asks for."""
        while isinstance(ack := await stream.read(), Ack):
            if ack.action == Ack.ACTION_RESYNC:
                self.resyncs += 1
                hashes, digest = pack_hashes(self._held), self._digest()
                snapshot = Snapshot(seq=self._seq, last=True, hashes=hashes, digest=digest)
                self._reports.put_nowait(Report(snapshot=snapshot))

    def _current_load(self) -> Load:
        load = Load()
        load.CopyFrom(self.load)
        load.seq = self._seq
        load.digest.CopyFrom(self._digest())
        return load

    def _digest(self) -> Digest:
        digest = SetDigest.of(self._held)
        return Digest(count=digest.count, xor=digest.xor)
