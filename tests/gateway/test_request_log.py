"""The request log: what a line says, and that nothing that happens to the file costs a request."""

import asyncio
import fcntl
import json
import logging
import subprocess
import sys
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode
from prometheus_client import CollectorRegistry, Counter
from radixgate.namespace import Namespace
from radixgate.prefix import boundary_hashes, pack_tokens, unpack_hashes
from radixgate.v1.generate_pb2 import (
    GenerateRequest,
    GenerateResponse,
    Scope,
    Started,
    Tokens,
)

from gateway.config import ConfigError
from gateway.route.router import Prompt
from gateway.serve import request_log
from gateway.serve.prepare import Prepared
from gateway.serve.request_log import RequestLog, Served, line
from tests.gateway.doubles import STRIDE, Abort, ScriptedWorker, echo, make_card
from tests.gateway.harness import PROMPT, REQUEST, serving, working
from tests.summary.valkey import Valkey

SEED = Namespace("a model").seed()
TOKENS = range(100, 200)
PREPARED = Prepared(
    GenerateRequest(packed=pack_tokens(TOKENS), scope=Scope(tenant="acme"), priority=-2),
    Prompt(pack_tokens(TOKENS), STRIDE, SEED),
    "words",
)


def tokens(*ids: int) -> bytes:
    """A message with these tokens."""
    return GenerateResponse(tokens=Tokens(ids=ids, text="words")).SerializeToString()


def lines(file: Path) -> list[dict[str, Any]]:
    """What is in the log."""
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def missing() -> Counter:
    """Counts what the log lacks."""
    return Counter("missing", "Requests", registry=CollectorRegistry())


def count(missing: Counter) -> float:
    """What it has counted."""
    (family,) = missing.collect()
    return family.samples[0].value


def test_a_line_has_hashes_and_lengths_and_no_token() -> None:
    output = tokens(7, 8) + tokens(9) + tokens(*range(50))
    served = Served(12.5, 0.25, "words", PREPARED.prompt, output, "acme", -2)
    said = json.loads(line(served))
    hashes = unpack_hashes(b64decode(said.pop("hashes")))
    assert hashes == boundary_hashes(pack_tokens([*TOKENS, 7, 8, 9, *range(50)]), STRIDE, SEED)
    assert len(hashes) == 2
    assert said == {
        "time": 12.5,
        "seconds": 0.25,
        "model": "words",
        "prompt_tokens": 100,
        "output_tokens": 53,
        "stride": STRIDE,
        "tenant": "822b33ad87c148a0",
        "priority": -2,
    }
    assert json.loads(line(served._replace(tenant="", output=b"")))["tenant"] == ""


def test_lines_are_appended(tmp_path: Path, missing: Counter) -> None:
    file = tmp_path / "log"
    for life in range(2):
        log = RequestLog(file, missing, lambda: 5.0)
        for _ in range(300):
            log.ended(PREPARED, tokens(7), 3.0)
        log.close()
        assert len(lines(file)) == 300 * (life + 1)
    assert {each["seconds"] for each in lines(file)} == {2.0}
    assert count(missing) == 0


def test_a_file_that_hangs_is_not_waited_for(
    tmp_path: Path,
    missing: Counter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(request_log, "CLOSE_SECONDS", 0.3)
    monkeypatch.setattr(request_log, "WAITING_BYTES", 5 * len(PREPARED.prompt.packed))
    file = tmp_path / "log"
    log = RequestLog(file, missing, lambda: 0.0)
    with file.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for _ in range(9):
            log.ended(PREPARED, b"", 0.0)
        assert count(missing) == 4
        log.close()
        assert lines(file) == []
        assert "not all is written, the file hangs" in caplog.text
    while file.read_bytes().count(b"\n") < 5:
        pass
    assert len(lines(file)) == 5


def test_a_full_disk_is_told_once(missing: Counter, caplog: pytest.LogCaptureFixture) -> None:
    log = RequestLog(Path("/dev/full"), missing, lambda: 0.0)
    for _ in range(600):
        log.ended(PREPARED, tokens(7), 0.0)
    log.close()
    assert count(missing) == 600
    (told,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "requests are missing in it from now on: [Errno 28] No space left" in told.message


FILLING = """
import logging, resource, sys
from pathlib import Path
from prometheus_client import Counter
from gateway.serve.request_log import RequestLog
from tests.gateway.test_request_log import PREPARED, count, tokens

logging.basicConfig(format="%(message)s")
file, missing = Path(sys.argv[1]), Counter("missing", "Requests")

def write(requests):
    log = RequestLog(file, missing, lambda: 0.0)
    for _ in range(requests):
        log.ended(PREPARED, tokens(7), 0.0)
    return log

write(2).close()
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size * 5 // 4, most))
log = write(1)
while not count(missing):
    pass
assert count(missing) == 1
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
for there in (3, 4):
    log.ended(PREPARED, tokens(7), 0.0)
    while len(file.read_bytes().splitlines()) < there:
        pass
log.close()
"""


def test_no_part_of_a_line_stays_on_a_full_disk(tmp_path: Path) -> None:
    file = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", FILLING, str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(lines(file)) == 4
    assert "requests are missing in it from now on: it has room for" in done.stderr
    assert done.stderr.count(f"request log {file}: written again; it lacks 1 requests") == 1


@pytest.mark.slow
async def test_what_was_served_is_logged(valkey: Valkey, tmp_path: Path) -> None:
    file = tmp_path / "log"
    worker = ScriptedWorker("a", make_card())
    async with serving(valkey, request_log=file) as client, working(client, worker):
        await client.generate()
        scope = Scope(tenant="acme")
        await client.generate(GenerateRequest(packed=PROMPT, scope=scope, priority=3))
        error = await client.failure(GenerateRequest(packed=pack_tokens([5] * 9000)))
        assert error.code() is StatusCode.INVALID_ARGUMENT
    one, other = lines(file)
    fingerprint = worker.card.fingerprint
    for said, namespace in (
        (one, Namespace(fingerprint)),
        (other, Namespace(fingerprint, tenant="acme")),
    ):
        assert (said["prompt_tokens"], said["output_tokens"], said["model"]) == (640, 2, "words")
        assert b64decode(said["hashes"]) == pack_hashes_of(namespace)
        assert 0 < said["seconds"] < 60
    assert one["time"] <= other["time"]
    assert [(said["tenant"], said["priority"]) for said in (one, other)] == [
        ("", 0),
        ("822b33ad87c148a0", 3),
    ]


def pack_hashes_of(namespace: Namespace) -> bytes:
    """Of `PROMPT` and two tokens, as they are in the log."""
    hashes = boundary_hashes(PROMPT + pack_tokens([7, 8]), STRIDE, namespace.seed())
    return b"".join(each.to_bytes(8, "little") for each in hashes)


@pytest.mark.slow
async def test_a_stream_that_went_on_elsewhere_is_one_request(
    valkey: Valkey, tmp_path: Path
) -> None:
    async def broken_once(
        request: GenerateRequest, worker: ScriptedWorker
    ) -> AsyncIterator[GenerateResponse]:
        if request.resumed_tokens:
            async for response in echo(request, worker):
                yield response
        else:
            yield GenerateResponse(started=Started(worker=worker.name, prompt_tokens=640))
            yield GenerateResponse(tokens=Tokens(ids=[6], text="1 "))
            raise Abort(StatusCode.UNAVAILABLE, "it breaks")

    file = tmp_path / "log"
    workers = [ScriptedWorker(name, make_card(), broken_once) for name in "ab"]
    async with serving(valkey, request_log=file) as client, working(client, *workers):
        await client.generate()
    (said,) = lines(file)
    assert (said["prompt_tokens"], said["output_tokens"]) == (640, 3)


@pytest.mark.slow
async def test_what_a_client_cancelled_is_logged_with_what_it_got(
    valkey: Valkey, tmp_path: Path
) -> None:
    async def endless(
        request: GenerateRequest, worker: ScriptedWorker
    ) -> AsyncIterator[GenerateResponse]:
        async for response in echo(request, worker):
            if not response.HasField("finished"):
                yield response
        await asyncio.sleep(3600)

    file = tmp_path / "log"
    worker = ScriptedWorker("a", make_card(), endless)
    async with serving(valkey, request_log=file) as client, working(client, worker):
        stream = client.gateway.Generate(REQUEST)
        for _ in range(3):
            await anext(aiter(stream))
        stream.cancel()
        await worker.cancelled.wait()
    (said,) = lines(file)
    assert said["output_tokens"] == 2


@pytest.mark.slow
async def test_a_file_that_cannot_be_opened_stops_the_start(valkey: Valkey, tmp_path: Path) -> None:
    told = r"--request-log .*none/log cannot be opened: No such file or directory"
    with pytest.raises(ConfigError, match=told):
        async with serving(valkey, request_log=tmp_path / "none" / "log"):
            pass
