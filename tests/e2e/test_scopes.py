"""What a real worker shares between salts and adapters: nothing, and no adapter that it has not."""

from pathlib import Path

import pytest
from radixgate import errors
from radixgate.client import Client

from tests.e2e.processes import Fleet, free_port, wait_until

pytestmark = pytest.mark.slow

PROMPT = list(range(8, 208))


def cached(client: Client, **scope: str) -> int:
    asked = client.generate(PROMPT, temperature=0, max_tokens=1, timeout=60, **scope)  # type: ignore[arg-type]
    return asked.result().started.cached_tokens


def test_salts_and_tenants_share_nothing_and_adapters_are_not_the_base_model(
    fleet: Fleet, tiny_llama: Path
) -> None:
    port = free_port()
    fleet.gateway(port).start()
    fleet.worker("w", tiny_llama, [port]).start()
    with Client(f"127.0.0.1:{port}") as client:
        wait_until(client.workers, 10, "the worker is known")
        scopes = [{}, {"salt": "a"}, {"salt": "b"}, {"tenant": "a"}, {"tenant": "a", "salt": "a"}]
        assert [cached(client, **scope) for scope in scopes] == [0] * len(scopes)
        assert [cached(client, **scope) for scope in scopes] == [192] * len(scopes)
        wait_until(lambda: client.explain(PROMPT).candidates[0].matched_tokens, 10, "reported")
        assert client.explain(PROMPT, adapter="x").candidates[0].expected_tokens == 0
        for refused in (
            client.generate(PROMPT, adapter="x").result,
            client.chat([{"role": "user", "content": "hi"}], adapter="x").result,
            lambda: client.pin(PROMPT, adapter="x", ttl=5),
        ):
            with pytest.raises(errors.NotFound, match=r"adapter 'x' is not here; .* no adapters"):
                refused()
