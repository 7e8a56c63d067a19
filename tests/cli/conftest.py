from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from cli.app import app
from tests.contract.gateway_double import GatewayDouble, serving

Run = Callable[..., Result]


@pytest.fixture
def gateway() -> Iterator[GatewayDouble]:
    with serving(GatewayDouble()) as double:
        yield double


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `radixgate` with arguments, in this process, at a terminal too wide to fold lines."""
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.delenv("RADIXGATE_GATEWAY", raising=False)

    def run(*arguments: str, **options: Any) -> Result:
        return CliRunner().invoke(app, arguments, **options)

    return run


@pytest.fixture
def ask(run: Run, gateway: GatewayDouble, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command that talks to the gateway double."""
    monkeypatch.setenv("RADIXGATE_GATEWAY", gateway.address)
    return run
