"""What a worker streams reaches the client as the bytes that it sent: nobody decodes them."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc.aio
import pytest
from radixgate.v1.gateway_pb2 import ChatMessage, ChatRequest
from radixgate.v1.generate_pb2 import Finished, GenerateRequest, GenerateResponse, Started
from radixgate.v1.worker_pb2 import ModelCard

from gateway.serve.forward import GENERATE
from tests.gateway.doubles import ScriptedWorker, make_card
from tests.gateway.harness import REQUEST, serving, working
from tests.summary.valkey import Valkey

pytestmark = pytest.mark.slow

STARTED = GenerateResponse(started=Started(worker="w", prompt_tokens=640)).SerializeToString()
FINISHED = GenerateResponse(finished=Finished(output_tokens=2)).SerializeToString()
# The text comes before the ids, which are not packed, and field 900 is of a later version: none of
# our libraries would write it so, if it had read it.
TOKENS = b"\x12\x0d" + b"\x12\x02ok" + b"\x08\x07\x08\x08" + b"\xa2\x38\x02ok"


class RawWorker(ScriptedWorker):
    """Answers with these bytes."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        super().__init__("w", make_card())
        self._messages = messages

    def add_to(self, server: grpc.aio.Server) -> None:
        service, generate = GENERATE.strip("/").split("/")
        methods = {
            "Describe": grpc.unary_unary_rpc_method_handler(
                self.Describe, response_serializer=ModelCard.SerializeToString
            ),
            generate: grpc.unary_stream_rpc_method_handler(self._play),
        }
        handler = grpc.method_handlers_generic_handler(service, methods)
        server.add_generic_rpc_handlers([handler])

    async def _play(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        for message in self._messages:
            yield message


def test_it_is_not_how_we_would_write_it() -> None:
    response = GenerateResponse.FromString(TOKENS)
    assert (list(response.tokens.ids), response.tokens.text) == ([7, 8], "ok")
    assert response.SerializeToString() != TOKENS


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("Generate", REQUEST),
        ("Chat", ChatRequest(messages=[ChatMessage(role="user", content="1")])),
    ],
)
async def test_tokens_pass_as_the_bytes_that_were_sent(
    valkey: Valkey, method: str, request_: GenerateRequest | ChatRequest
) -> None:
    worker = RawWorker([STARTED, TOKENS, TOKENS, FINISHED])
    async with (
        serving(valkey) as client,
        working(client, worker),
        grpc.aio.insecure_channel(client.address) as channel,
    ):
        call = channel.unary_stream(f"/radixgate.v1.Gateway/{method}")
        started, *rest = [message async for message in call(request_.SerializeToString())]
    assert GenerateResponse.FromString(started).started.worker == "w"
    assert rest == [TOKENS, TOKENS, FINISHED]
