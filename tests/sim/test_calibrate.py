"""Calibration of real workers: a tiny model, whose steps take about a millisecond."""

from pathlib import Path

import pytest

from sim.hardware.calibrate import CalibrationError, Limits, calibrate
from sim.hardware.setup_file import read_setup, write_setup
from tests.e2e.processes import Fleet, free_port
from tests.models import MAX_CONTEXT

pytestmark = pytest.mark.slow


def alone(fleet: Fleet, model: Path, *options: str) -> str:
    """A worker that reports to nobody; its address."""
    port = str(free_port())
    fleet.worker("a", model, [], "--port", port, *options).start()
    return f"127.0.0.1:{port}"


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
    assert len(told) == len(found.measured) == len(found.fit.errors)
    assert found.fit.typical_error < 0.5, "the formula is not that of a worker"

    path = tmp_path / "setup.json"
    write_setup(path, setup, found.notes())
    assert read_setup(path) == setup


def test_nobody_there() -> None:
    with pytest.raises(CalibrationError, match="failed: UNAVAILABLE"):
        calibrate(f"127.0.0.1:{free_port()}")


def test_too_little_memory_to_tell_anything(fleet: Fleet, tiny_llama: Path) -> None:
    address = alone(fleet, tiny_llama, "--kv-memory", "64KiB")
    with pytest.raises(CalibrationError, match=r"prompts may have \d+ tokens here, .* needs 64; "):
        calibrate(address)
