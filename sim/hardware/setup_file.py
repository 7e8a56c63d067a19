"""A worker's setup as a JSON file, so that one that was measured can be simulated later."""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from sim.hardware.setup import WorkerSetup
from sim.hardware.step_time import StepTime
from worker.kv.policy import POLICIES

T = TypeVar("T")


def write_setup(path: Path, setup: WorkerSetup, notes: Mapping[str, object]) -> None:
    """Write `setup`, and beside it what else is worth keeping of how it came about.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_text(json.dumps({"worker": asdict(setup), **notes}, indent=2) + "\n")


def read_setup(path: Path) -> WorkerSetup:
    """What `write_setup` wrote, or somebody in its form.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no setup; the message names the file and what is wrong.
    """
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(
            f"{path}: not JSON, as `simulate --calibrate` writes it: {error}"
        ) from error
    try:
        worker = _member(found, "worker")
        step_time = _made(StepTime, _member(worker, "step_time"), "worker.step_time")
        setup = _made(WorkerSetup, {**worker, "step_time": step_time}, "worker")
        _check(setup)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return setup


def _member(found: Any, name: str) -> dict[str, Any]:
    """The JSON object that `found`, which must be one itself, has under `name`."""
    value = found.get(name) if isinstance(found, dict) else None
    if not isinstance(value, dict):
        raise TypeError(f"there is no JSON object {name!r}, as `simulate --calibrate` writes it")
    return value


def _made(kind: type[T], values: Mapping[str, Any], name: str) -> T:
    """A dataclass of those `values`, each of the type of its field."""
    types = get_type_hints(kind)
    if unknown := [key for key in values if key not in types]:
        raise ValueError(f"{name}.{unknown[0]} is unknown; there are: {', '.join(types)}")
    needed = [each.name for each in fields(kind) if each.default is MISSING]  # type: ignore[arg-type]
    if missing := [key for key in needed if key not in values]:
        raise ValueError(f"{name}.{missing[0]} is missing; needed are: {', '.join(needed)}")
    for key, value in values.items():
        wanted = types[key]
        if type(value) is not wanted and (type(value), wanted) != (int, float):
            raise TypeError(f"{name}.{key} must be of type {wanted.__name__}, and is {value!r}")
    return kind(**values)


def _check(setup: WorkerSetup) -> None:
    for name in ("num_blocks", "block_size", "max_running", "token_budget", "gpus"):
        if getattr(setup, name) < 1:
            raise ValueError(f"worker.{name} must be 1 or more, and is {getattr(setup, name)}")
    if setup.max_running > setup.token_budget:
        raise ValueError(
            f"worker.max_running is {setup.max_running}, more than token_budget, "
            f"{setup.token_budget}, so that not every sequence could go on in a step"
        )
    if setup.chunk_seconds <= 0:
        raise ValueError(f"worker.chunk_seconds must be above 0, and is {setup.chunk_seconds}")
    if not 0 <= setup.request_seconds < math.inf:
        seconds = setup.request_seconds
        raise ValueError(f"worker.request_seconds must be 0 or more, and is {seconds}")
    if setup.eviction not in POLICIES:
        raise ValueError(
            f"worker.eviction {setup.eviction!r} is unknown; there are: {', '.join(POLICIES)}"
        )
