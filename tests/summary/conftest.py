from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.summary.valkey import Valkey


@pytest.fixture(scope="session")
def valkey() -> Iterator[Valkey]:
    """Shared by all tests, each with a pool of its own."""
    yield from _running()


@pytest.fixture
def own_valkey() -> Iterator[Valkey]:
    """To be killed."""
    yield from _running()


def _running() -> Iterator[Valkey]:
    # NOTE: not pytest's tmp_path, which may be too long for the name of a socket.
    with TemporaryDirectory(prefix="radixgate-test-") as directory:
        server = Valkey(Path(directory))
        server.start()
        yield server
        server.kill()
