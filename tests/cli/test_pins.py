"""`radixgate pin` and `unpin` at a real gateway and worker with a tiny model."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from radixgate.client import Client

from tests.cli.conftest import Run
from tests.e2e.processes import Fleet, free_port, wait_until

pytestmark = pytest.mark.slow

# 64 blocks of 16 tokens, of which pins may hold 16; see KV_BYTES of the worker's tests. What was
# longest unused goes first, however often it was asked for.
MEMORY = ("--kv-memory", str(64 * 8192), "--eviction", "lru")
PROMPT = "a system prompt " * 16


@pytest.fixture
def address(tmp_path: Path, tiny_llama: Path) -> Iterator[str]:
    port = free_port()
    fleet = Fleet(tmp_path)
    try:
        fleet.gateway(port).start()
        fleet.worker("w", tiny_llama, [port], *MEMORY).start()
        with Client(f"127.0.0.1:{port}") as client:
            wait_until(client.workers, 10, "the worker is known")
        yield f"127.0.0.1:{port}"
    finally:
        fleet.stop()


def test_a_pinned_prompt_outlives_a_flood_until_it_is_unpinned(run: Run, address: str) -> None:
    def cached() -> int:
        """Prompt tokens that are cached after more than the whole memory was asked for."""
        with Client(address) as client:
            for first in range(100, 400, 100):
                client.generate(list(range(first, first + 100)) * 5, max_tokens=1).result()
            return client.generate(PROMPT, max_tokens=1).result().started.cached_tokens

    at = ("--gateway", address)
    pinned = json.loads(run("pin", PROMPT, "--json", *at).stdout)
    assert pinned["worker"] == "w"
    assert pinned["pinned_tokens"] == pinned["prompt_tokens"] // 16 * 16 > 0
    assert cached() == pinned["pinned_tokens"]
    full = run("pin", PROMPT, "--tenant", "t", *at)
    assert full.exit_code == 3
    assert "may hold 16" in full.stderr
    assert run("unpin", PROMPT, *at).stdout == "w keeps it no longer\n"
    assert cached() == 0
    gone = run("unpin", PROMPT, *at)
    assert gone.exit_code == 2
    assert "has no pin of this prompt" in gone.stderr
    short = run("pin", "hi", *at)
    assert short.exit_code == 2
    assert "fill no block of 16" in short.stderr
