"""Fixtures of the tests of discovery."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.discovery.cluster import SliceCluster, slice_cluster


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SliceCluster]:
    async with slice_cluster(tmp_path, monkeypatch) as cluster:
        yield cluster
