"""A served store, and kubectl beside it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.kube.server import ApiServer
from tests.kube.store import Store

Kubectl = Callable[..., Awaitable[str]]


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    server = ApiServer(
        Store(), bookmarks=0.05, logs=lambda pod: f"log of {pod['metadata']['name']}"
    )
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def kubectl(api: ApiServer, tmp_path: Path) -> Kubectl:
    """Runs kubectl: what it printed, or AssertionError with that."""
    config = tmp_path / "kubeconfig"
    config.write_text(api.kubeconfig())
    env = os.environ | {"KUBECONFIG": str(config), "HOME": str(tmp_path)}
    binary = Path(sys.executable).parent / "kubectl"

    async def run(*args: str, stdin: str = "") -> str:
        process = await asyncio.create_subprocess_exec(
            *(str(binary), *args), env=env, stdin=-1, stdout=-1, stderr=-2
        )
        output, _ = await process.communicate(stdin.encode())
        assert process.returncode == 0, output.decode()
        return output.decode()

    return run
