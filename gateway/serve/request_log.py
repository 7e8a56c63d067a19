"""A log of the requests that were served: what a simulator needs to serve them again, and no text.

One line of JSON for each:

    time            when it came, in seconds since 1970
    seconds         from then to its end
    model           that served it
    prompt_tokens   and
    output_tokens   that the client got
    stride          tokens from one boundary to the next
    hashes          of all boundaries of prompt and output together, little-endian uint64, in base64
    tenant          the first 64 bits of the SHA-256 of its name, in hex; "" for no tenant
    priority        as it was asked

No request waits for the log. A thread of its own hashes and writes; what it cannot keep up with, or
cannot write, is missing in the log and counted. Several processes may write to one file: they
take turns, and there is no part of a line in it, even when the disk is full.
"""

import base64
import fcntl
import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from prometheus_client import Counter
from radixgate.prefix import boundary_hashes, pack_hashes, pack_tokens
from radixgate.v1.generate_pb2 import GenerateResponse

from gateway.route.router import Prompt
from gateway.serve.prepare import Prepared

logger = logging.getLogger(__name__)

WAITING_BYTES: Final = 64 * 2**20
"""Of prompts and answers that wait to be written."""

BATCH: Final = 256
"""Lines that are written at once."""

CLOSE_SECONDS: Final = 5.0


class Served(NamedTuple):
    """A request that has ended.

    Args: `time`, `seconds` and `model` as in the log; its `prompt`; `output`, the Tokens messages
    that the client got, one after the other; the name of its `tenant`; its `priority`.
    """

    time: float
    seconds: float
    model: str
    prompt: Prompt
    output: bytes
    tenant: str
    priority: int


def line(served: Served) -> bytes:
    """The line of a request."""
    # NOTE: messages in a row parse as one, in which repeated fields are joined.
    output = GenerateResponse.FromString(served.output).tokens.ids
    prompt = served.prompt
    hashes = boundary_hashes(prompt.packed + pack_tokens(output), prompt.stride, prompt.seed)
    values = {
        "time": round(served.time, 6),
        "seconds": round(served.seconds, 6),
        "model": served.model,
        "prompt_tokens": prompt.tokens,
        "output_tokens": len(output),
        "stride": prompt.stride,
        "hashes": base64.b64encode(pack_hashes(hashes)).decode(),
        "tenant": served.tenant and hashlib.sha256(served.tenant.encode()).hexdigest()[:16],
        "priority": served.priority,
    }
    return json.dumps(values, separators=(",", ":")).encode() + b"\n"


class RequestLog:
    """Appends to a file.

    Args: `path` of the file; `missing`, which counts requests that it lacks; `clock`, the fleet's.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, missing: Counter, clock: Callable[[], float]) -> None:
        self._path = path
        self._missing = missing
        self._clock = clock
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._waiting: SimpleQueue[Served | None] = SimpleQueue()
        # Bytes in all: one is changed by the requests' thread alone, the other by the log's.
        self._taken = self._done = 0
        self._lost = 0
        self._thread = threading.Thread(target=self._run, name="request-log", daemon=True)
        self._thread.start()

    def ended(self, prepared: Prepared, output: bytes, arrived: float) -> None:
        """A request has ended that came at the time `arrived` of the clock. Returns at once.

        Args: `output`, the Tokens messages that the client got, one after the other.
        """
        size = len(prepared.prompt.packed) + len(output)
        if self._taken - self._done + size > WAITING_BYTES:
            self._missing.inc()
            return
        self._taken += size
        seconds = self._clock() - arrived
        request = prepared.request
        self._waiting.put(
            Served(
                time.time() - seconds,
                seconds,
                prepared.model,
                prepared.prompt,
                output,
                request.scope.tenant,
                request.priority,
            )
        )

    def close(self) -> None:
        """Write what is waiting, for some seconds at most."""
        self._waiting.put(None)
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            logger.warning("request log %s: not all is written, the file hangs", self._path)

    def _run(self) -> None:
        closing = False
        while not closing:
            batch = [self._waiting.get()]
            try:
                while len(batch) < BATCH:
                    batch.append(self._waiting.get_nowait())
            except Empty:
                pass
            closing = batch[-1] is None
            self._write([served for served in batch if served is not None])
        os.close(self._file)

    def _write(self, batch: Sequence[Served]) -> None:
        lines = bytearray()
        for each in batch:
            lines += line(each)
            # NOTE: else who serves requests waits for the interpreter for as long as a batch takes.
            time.sleep(0)
        try:
            self._append(lines)
        except OSError as error:
            if not self._lost:
                logger.warning(
                    "request log %s: requests are missing in it from now on: %s", self._path, error
                )
            self._lost += len(batch)
            self._missing.inc(len(batch))
        else:
            if self._lost:
                logger.warning(
                    "request log %s: written again; it lacks %d requests", self._path, self._lost
                )
            self._lost = 0
        self._done += sum(len(each.prompt.packed) + len(each.output) for each in batch)

    def _append(self, data: bytearray) -> None:
        """All of `data`, or nothing."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            before = os.fstat(self._file).st_size
            written = os.write(self._file, data)
            if written < len(data):
                os.ftruncate(self._file, before)
                raise OSError(f"it has room for {written} of {len(data)} bytes")
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
