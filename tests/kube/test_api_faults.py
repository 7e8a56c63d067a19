"""The Python client against the API server, and the faults that tests inject."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException

from tests.kube import kinds
from tests.kube.examples import config_map
from tests.kube.server import ApiServer

pytestmark = pytest.mark.slow


@pytest.fixture
async def core(api: ApiServer) -> AsyncIterator[client.CoreV1Api]:
    async with await config.new_client_from_config_dict(json.loads(api.kubeconfig())) as connection:
        yield client.CoreV1Api(connection)


class Follower:
    """One raw watch of config maps: `events` as "TYPE name"."""

    def __init__(self, core: client.CoreV1Api, **query: Any) -> None:
        self._call = core.list_namespaced_config_map_without_preload_content(
            "default", watch=True, _request_timeout=30, **query
        )

    async def __aenter__(self) -> "Follower":
        self._response = await self._call
        return self

    async def __aexit__(self, *_: object) -> None:
        self._response.close()

    async def next(self, seconds: float = 10.0) -> str | None:
        """The next event but for bookmarks; None at the end of the stream."""
        async with asyncio.timeout(seconds):
            while line := await self._response.content.readline():
                event = json.loads(line)
                about = event["object"].get("metadata", {}).get("name") or event["object"].get(
                    "code"
                )
                if event["type"] != "BOOKMARK":
                    return f"{event['type']} {about}"
        return None


def put(api: ApiServer, name: str, **labels: str) -> None:
    found = api.store.get(kinds.CONFIG_MAP, "default", name)
    write = api.store.replace if found else api.store.create
    write(kinds.CONFIG_MAP, config_map(name, labels=labels))


async def test_list_and_watch(api: ApiServer, core: client.CoreV1Api) -> None:
    put(api, "a", x="1")
    found = await core.list_namespaced_config_map("default", label_selector="x in (1,2)")
    assert [item.metadata.name for item in found.items] == ["a"]
    assert found.items[0].kind is None  # as the real server's lists have it
    put(api, "b", x="1")
    query = {"resource_version": found.metadata.resource_version, "label_selector": "x=1"}
    async with Follower(core, **query) as follower:
        assert await follower.next() == "ADDED b"
        put(api, "b", x="2")
        assert await follower.next() == "DELETED b"
        api.store.delete(kinds.CONFIG_MAP, "default", "a")
        assert await follower.next() == "DELETED a"


async def test_a_watch_ends_with_its_timeout(api: ApiServer, core: client.CoreV1Api) -> None:
    async with Follower(core, timeout_seconds=1) as follower:
        assert await follower.next() is None


async def test_typed_patches_and_errors(api: ApiServer, core: client.CoreV1Api) -> None:
    put(api, "a")
    patch = {"metadata": {"annotations": {"k": "v"}}}
    patched = await core.patch_namespaced_config_map("a", "default", patch)
    assert patched.metadata.annotations == {"k": "v"}
    with pytest.raises(ApiException) as refused:
        await core.read_namespaced_config_map("zz", "default")
    assert (refused.value.status, json.loads(refused.value.body)["reason"]) == (404, "NotFound")


async def test_an_account_has_the_token_of_its_kubeconfig(api: ApiServer) -> None:
    account = json.loads(api.kubeconfig("system:serviceaccount:default:x"))
    async with await config.new_client_from_config_dict(account) as connection:
        core = client.CoreV1Api(connection)
        with pytest.raises(ApiException) as refused:
            await core.list_namespaced_pod("default")
        assert (refused.value.status, "default:x" in refused.value.body) == (403, True)
    account["users"][0]["user"]["token"] = "strange"
    async with await config.new_client_from_config_dict(account) as connection:
        with pytest.raises(ApiException) as refused:
            await client.CoreV1Api(connection).list_namespaced_pod("default")
        assert refused.value.status == 401


async def test_a_dropped_event_is_dropped_from_all_watches(
    api: ApiServer, core: client.CoreV1Api
) -> None:
    put(api, "a")
    async with Follower(core) as one, Follower(core) as other:
        assert [await one.next(), await other.next()] == ["ADDED a", "ADDED a"]
        api.drop_next("DELETED", kinds.CONFIG_MAP)
        put(api, "b")
        for name in "ab":
            api.store.delete(kinds.CONFIG_MAP, "default", name)
        for follower in (one, other):
            assert [await follower.next(), await follower.next()] == ["ADDED b", "DELETED b"]


async def test_an_expired_history(api: ApiServer, core: client.CoreV1Api) -> None:
    old = api.store.revision
    put(api, "a")
    async with Follower(core, resource_version=str(old)) as follower:
        assert await follower.next() == "ADDED a"
        api.expire()
        assert await follower.next() == "ERROR 410"
        assert await follower.next() is None
    async with Follower(core, resource_version=str(old)) as follower:
        assert await follower.next() == "ERROR 410"


async def test_a_frozen_watch_hangs_and_a_new_one_does_not(
    api: ApiServer, core: client.CoreV1Api
) -> None:
    async with Follower(core, timeout_seconds=1, allow_watch_bookmarks=True) as frozen:
        put(api, "a")
        assert await frozen.next() == "ADDED a"
        api.freeze()
        put(api, "b")
        with pytest.raises(TimeoutError):
            await frozen.next(seconds=1.5)
        async with Follower(core) as follower:
            assert await follower.next() == "ADDED a"


async def test_a_failing_server(api: ApiServer, core: client.CoreV1Api) -> None:
    api.fail(503)
    with pytest.raises(ApiException) as refused:
        await core.list_namespaced_config_map("default")
    assert refused.value.status == 503
    api.fail(0)
    await core.list_namespaced_config_map("default")


async def test_a_server_that_was_away_has_kept_everything(
    api: ApiServer, core: client.CoreV1Api
) -> None:
    put(api, "a")
    async with Follower(core, resource_version=str(api.store.revision)) as follower:
        await api.stop()
        with suppress(aiohttp.ClientError):
            assert await follower.next() is None
    with pytest.raises(aiohttp.ClientError):
        await core.list_namespaced_config_map("default")
    put(api, "b")
    await api.start()
    found = await core.list_namespaced_config_map("default")
    assert [item.metadata.name for item in found.items] == ["a", "b"]
