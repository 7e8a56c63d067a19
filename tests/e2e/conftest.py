"""Fixtures of the end-to-end tests: a fleet of real processes, and a real model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.processes import Fleet
from worker.model.pull import DEFAULT_MODEL, pull


@pytest.fixture
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Processes of this test alone, ended with it; their logs are shown when it fails."""
    fleet = Fleet(tmp_path)
    try:
        yield fleet
    finally:
        request.node.add_report_section("teardown", "logs", fleet.logs())
        fleet.stop()


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, the default model of `radixgate up`, pulled if it is not there."""
    return pull(DEFAULT_MODEL)
