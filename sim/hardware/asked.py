"""The worker that a person asks for: a preset or a measured one, and what is to differ."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from sim.hardware.presets import preset, preset_names
from sim.hardware.setup import WorkerSetup
from sim.hardware.setup_file import read_setup
from sim.request import Trace
from sim.values import PlanError, positive, whole
from worker.kv.policy import POLICIES

ENDLESS: Final = "endless"
"""As `kv_blocks`: so many that nothing is ever evicted."""

MOST_TOKENS: Final = 2**28
"""That the KV memory of one worker holds; more are taken for a slip."""


def asked_setup(values: Mapping[str, str], trace: Trace) -> WorkerSetup:
    """Args: `values` by the names of `sim.plan.SWEPT`; the `trace` that endless memory is for.

    Raises:
        PlanError: a value is wrong, or does not fit another.
        ValueError: a preset, format or file is wrong.
    """
    setup = _worker(values["worker"], values.get("kv_format"))
    changes: dict[str, int | float | str] = {
        name: whole(name, values[name])
        for name in ("block_size", "max_running", "token_budget")
        if values.get(name)
    }
    if eviction := values.get("eviction"):
        if eviction not in POLICIES:
            raise PlanError(f"eviction {eviction!r}: there are {', '.join(POLICIES)}")
        changes["eviction"] = eviction
    if chunk := values.get("chunk_ms"):
        changes["chunk_seconds"] = positive("chunk_ms", chunk) / 1000
    block_size = int(changes.get("block_size", setup.block_size))
    if blocks := values.get("kv_blocks"):
        changes["num_blocks"] = (
            _endless(trace, block_size) if blocks == ENDLESS else whole("kv_blocks", blocks)
        )
    elif block_size != setup.block_size:
        changes["num_blocks"] = setup.kv_tokens // block_size
        if not changes["num_blocks"]:
            raise PlanError(
                f"block_size {block_size}: the KV memory of worker {setup.name} has room for "
                f"{setup.kv_tokens:,} tokens, and for no such block; choose smaller ones"
            )
    setup = replace(setup, **changes)  # type: ignore[arg-type]
    if blocks != ENDLESS and setup.kv_tokens > MOST_TOKENS:
        raise PlanError(
            f"kv_blocks {setup.num_blocks}, of {setup.block_size} tokens each, hold "
            f"{setup.kv_tokens:,} tokens; {MOST_TOKENS:,} are the most, or {ENDLESS}"
        )
    if setup.max_running > setup.token_budget:
        raise PlanError(
            f"max_running {setup.max_running}: a step of token_budget {setup.token_budget} has no "
            f"room for a token of each"
        )
    return setup


def _worker(name: str, kv_format: str | None) -> WorkerSetup:
    if name in preset_names():
        return preset(name, kv_format or "none")
    path, presets = Path(name), ", ".join(preset_names())
    if not path.is_file():
        raise PlanError(
            f"worker {name!r} is no preset and no file; presets: {presets}; "
            f"--calibrate measures a live worker into a file"
        )
    if kv_format is not None:
        raise PlanError(f"kv_format {kv_format!r}: worker {name} was measured in one of its own")
    try:
        return read_setup(path)
    except ValueError as error:
        raise PlanError(f"worker {error}; presets: {presets}") from error


def _endless(trace: Trace, block_size: int) -> int:
    return sum(
        math.ceil((request.prompt.tokens + request.output_tokens) / block_size) + 1
        for request in trace.requests
    )
