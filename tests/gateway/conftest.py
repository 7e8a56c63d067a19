"""Fixtures of the gateway's tests."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.summary.valkey import Valkey


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    # NOTE: not pytest's tmp_path, which may be too long for the name of a socket.
    with TemporaryDirectory(prefix="radixgate-test-") as directory:
        server = Valkey(Path(directory))
        server.start()
        yield server
        server.kill()
