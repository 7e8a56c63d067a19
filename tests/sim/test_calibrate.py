"""Calibration of real workers: a tiny model, whose steps take about a millisecond."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from radixgate.client import Client

from sim.hardware.calibrate import Calibration, CalibrationError, Limits, calibrate
from sim.hardware.setup_file import read_setup, write_setup
from sim.trace.formats import open_trace
from tests.e2e.processes import Fleet, free_port, wait_until
from tests.models import MAX_CONTEXT

pytestmark = pytest.mark.slow


def alone(fleet: Fleet, model: Path, *options: str) -> str:
    """A worker that reports to nobody; its address."""
    port = str(free_port())
    fleet.worker("a", model, [], "--port", port, *options).start()
    return f"127.0.0.1:{port}"


def again(address: str) -> Iterator[Calibration]:
    """Two more tries, each when it is asked for."""
    for _ in range(2):
        yield calibrate(address, Limits(max_running=8, eviction="cost"))


def test_a_worker_is_measured(fleet: Fleet, tiny_llama: Path, tmp_path: Path) -> None:
    told: list[str] = []
    address = alone(fleet, tiny_llama, "--kv-memory", "16MiB")
    found = calibrate(address, Limits(max_running=8, eviction="cost"), told.append)
    setup = found.setup
    assert setup.name == "tiny-llama, KV none"
    # 2 layers, keys and values of 2 heads of 16 float32 each.
    assert setup.num_blocks == 16 * 2**20 // (16 * 2 * 2 * 2 * 16 * 4)
    assert (setup.max_running, setup.eviction, setup.block_size) == (8, "cost", 16)
    assert 0 < setup.request_seconds < 1
    lengths = {each.work.prompt_tokens for each in found.measured}
    assert {32, 64, 128, 256, 512, 1024} < lengths
    assert max(lengths) < MAX_CONTEXT
    assert {each.work.generations for each in found.measured} == {0, 1, 4}
    assert len(told) - 1 == len(found.measured) == len(found.fit.errors)
    # NOTE: a machine that stalls while it measures says nothing of the formula.
    errors = (each.fit.typical_error for each in chain([found], again(address)))
    assert any(error < 0.5 for error in errors), "the formula is not that of a worker"

    path = tmp_path / "setup.json"
    write_setup(path, setup, found.notes())
    assert read_setup(path) == setup


def test_the_way_through_a_gateway_is_measured_there(
    fleet: Fleet, tiny_llama: Path, tmp_path: Path
) -> None:
    redis_port, gateway_port, port = free_port(), free_port(), free_port()
    log = tmp_path / "requests.jsonl"
    fleet.redis(redis_port).start()
    gateway = fleet.gateway(gateway_port, redis_port, "--request-log", str(log)).start()
    options = ("--port", str(port), "--kv-memory", "1MiB")
    fleet.worker("a", tiny_llama, [gateway_port], *options).start()
    with Client(f"127.0.0.1:{gateway_port}") as client:
        wait_until(client.workers, 10, "the worker is known")
    found = calibrate(f"127.0.0.1:{port}", gateway=f"127.0.0.1:{gateway_port}")
    gateway.stop()
    lengths = {each.work.prompt_tokens for each in found.measured} - {0}
    assert {request.prompt.tokens for request in open_trace(log).requests} == lengths
    assert 0 < found.setup.request_seconds < 1


def test_which_of_the_two_is_not_there(fleet: Fleet, tiny_llama: Path) -> None:
    address = alone(fleet, tiny_llama, "--kv-memory", "1MiB")
    with pytest.raises(CalibrationError, match=r"^the gateway at .* failed: UNAVAILABLE"):
        calibrate(address, gateway=f"127.0.0.1:{free_port()}")


def test_nobody_there() -> None:
    with pytest.raises(CalibrationError, match=r"^the worker at .* failed: UNAVAILABLE"):
        calibrate(f"127.0.0.1:{free_port()}")


def test_too_little_memory_to_tell_anything(fleet: Fleet, tiny_llama: Path) -> None:
    address = alone(fleet, tiny_llama, "--kv-memory", "64KiB")
    with pytest.raises(CalibrationError, match=r"prompts may have \d+ tokens here, .* needs 64; "):
        calibrate(address)
