"""The least that a gateway on grpc.aio can do: `python -m bench.gateway.floor WORKER`.

Its Generate passes the bytes of a request on to the worker at that address, and the bytes of the
answer back; its Explain is empty. It looks at nothing. The first line it prints is its address.
"""

import asyncio
import sys
from typing import Any

import grpc.aio
from radixgate.serving import SERVER_OPTIONS

from gateway.fleet.channels import OPTIONS
from gateway.serve.forward import GENERATE
from gateway.serve.service import SERVICE_NAME


async def serve(worker: str) -> None:
    """Serve; never returns."""
    channel = grpc.aio.insecure_channel(worker, options=OPTIONS)
    ask: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(GENERATE)

    async def generate(request: bytes, context: Any) -> None:
        async for message in ask(request):
            await context.write(message)

    async def explain(_: bytes, __: Any) -> bytes:
        return b""

    server = grpc.aio.server(options=SERVER_OPTIONS)
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Generate": grpc.unary_stream_rpc_method_handler(generate),
        "Explain": grpc.unary_unary_rpc_method_handler(explain),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE_NAME, handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
