"""A gateway of the contract that answers from a script, for tests of its clients.

It is a protocol double: it speaks real gRPC on a real port, and decides nothing.
"""

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from radixgate.limits import MAX_MESSAGE_BYTES
from radixgate.prefix import pack_tokens
from radixgate.v1.gateway_pb2 import (
    FINISH_OUTCOME_COUNTED,
    Candidate,
    ExplainResponse,
    FinishResponse,
    ListModelsResponse,
    ListWorkersResponse,
    ModelInfo,
    RouteResponse,
    Trust,
    UnpinResponse,
    WorkerInfo,
)
from radixgate.v1.gateway_pb2_grpc import GatewayServicer, add_GatewayServicer_to_server
from radixgate.v1.generate_pb2 import (
    FINISH_REASON_STOP,
    Finished,
    GenerateRequest,
    GenerateResponse,
    Pinned,
    Started,
    Tokens,
)
from radixgate.v1.sync_pb2 import Load


class Hang:
    """In a script: say no more until the client goes away."""


Script = Iterable[GenerateResponse | Hang | tuple[grpc.StatusCode, str]]


def answer(*texts: str, prompt_tokens: int = 100, cached_tokens: int = 64) -> Script:
    """A whole stream whose pieces are `texts`, each a token of its own."""
    counts = {"prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens}
    yield GenerateResponse(started=Started(request_id="r", worker="w0", **counts))
    for token, text in enumerate(texts):
        yield GenerateResponse(tokens=Tokens(ids=[token], text=text))
    yield GenerateResponse(
        finished=Finished(
            reason=FINISH_REASON_STOP,
            output_tokens=len(texts),
            ttft_seconds=0.25,
            total_seconds=1.25,
            **counts,
        )
    )


WORKER = WorkerInfo(
    worker="w0",
    model="tiny",
    address="127.0.0.1:1",
    trust=Trust.TRUST_LIVE,
    load=Load(total_blocks=100, free_blocks=40, cached_blocks=50, running=1, max_running=8),
)


@dataclass
class GatewayDouble(GatewayServicer):
    """Answers every stream with `script`, which may end in a status; keeps what it was asked."""

    script: list[Any] = field(default_factory=lambda: list(answer("Hello", ", ", "world")))
    unary_error: tuple[grpc.StatusCode, str] | None = None
    trailers: tuple[tuple[str, str], ...] = ()
    listed: list[WorkerInfo] = field(default_factory=lambda: [WORKER])
    requests: list[Any] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)
    address: str = ""

    def Generate(self, request: Any, context: Any) -> Iterator[GenerateResponse]:
        self.requests.append(request)
        context.add_callback(self.cancelled.set)
        context.set_trailing_metadata(self.trailers)
        self.asked.set()
        for step in list(self.script):
            if isinstance(step, Hang):
                self.cancelled.wait()
            elif isinstance(step, tuple):
                context.abort(*step)
            else:
                yield step

    Chat = Generate

    def Route(self, request: Any, context: Any) -> RouteResponse:
        self._note(request, context)
        return RouteResponse(
            request=GenerateRequest(request_id="r", packed=pack_tokens([1, 2, 3])),
            worker="w0",
            address="127.0.0.1:1",
            prompt_tokens=3,
            matched_tokens=2,
            reservation="g-1-tiny",
            reason="w0 holds 2 of 3 tokens.",
        )

    def Finish(self, request: Any, context: Any) -> FinishResponse:
        self._note(request, context)
        return FinishResponse(outcome=FINISH_OUTCOME_COUNTED)

    def Explain(self, request: Any, context: Any) -> ExplainResponse:
        self._note(request, context)
        best = Candidate(
            worker="w0", trust=Trust.TRUST_LIVE, matched_tokens=64, total_ms=12.5, chosen=True
        )
        other = Candidate(worker="w1", trust=Trust.TRUST_SUSPECT, total_ms=80)
        return ExplainResponse(
            model="tiny",
            prompt_tokens=100,
            candidates=[best, other],
            reason="w0 holds 64 of 100 tokens.",
        )

    def Pin(self, request: Any, context: Any) -> Pinned:
        self._note(request, context)
        return Pinned(worker="w0", prompt_tokens=100, pinned_tokens=96)

    def Unpin(self, request: Any, context: Any) -> UnpinResponse:
        self._note(request, context)
        return UnpinResponse(workers=["w0", "w1"])

    def ListWorkers(self, request: Any, context: Any) -> ListWorkersResponse:
        self._note(request, context)
        return ListWorkersResponse(workers=self.listed)

    def ListModels(self, request: Any, context: Any) -> ListModelsResponse:
        self._note(request, context)
        return ListModelsResponse(models=[ModelInfo(model="tiny", workers=1)])

    def _note(self, request: Any, context: Any) -> None:
        self.requests.append(request)
        context.set_trailing_metadata(self.trailers)
        if self.unary_error:
            context.abort(*self.unary_error)


@contextmanager
def serving(double: GatewayDouble) -> Iterator[GatewayDouble]:
    """`double` on a port of its own, its `address` filled in."""
    server = grpc.server(
        ThreadPoolExecutor(max_workers=4),
        options=[
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ],
    )
    add_GatewayServicer_to_server(double, server)
    double.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield double
    finally:
        server.stop(grace=0).wait()
