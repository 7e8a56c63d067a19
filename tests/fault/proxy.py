"""A TCP proxy that can hold back what its server answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class SlowProxy:
    """Attributes: `late`, in seconds, is each answer from now on; `port`, to connect to."""

    def __init__(self, server_port: int) -> None:
        self.late = 0.0
        self.port = 0
        self._server_port = server_port

    @asynccontextmanager
    async def running(self) -> AsyncIterator["SlowProxy"]:
        """Serve as long as the context lasts."""
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, questions = await asyncio.open_connection("127.0.0.1", self._server_port)
        with suppress(ConnectionError):
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(reader, questions, is_answer=False))
                both.create_task(self._copy(answers, writer, is_answer=True))

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                if is_answer:
                    await asyncio.sleep(self.late)
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()
