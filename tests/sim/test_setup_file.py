import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.hardware.presets import preset, preset_names
from sim.hardware.setup import WorkerSetup
from sim.hardware.setup_file import read_setup, write_setup
from sim.hardware.step_time import StepTime

SETUP = preset("h100-llama-8b")


@given(st.sampled_from(preset_names()), st.text(), st.integers(1, 512), st.floats(1e-6, 10))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, name: str, title: str, running: int, chunk: float
) -> None:
    path = tmp_path_factory.getbasetemp() / "setup.json"
    setup = replace(preset(name), name=title, max_running=running, chunk_seconds=chunk)
    write_setup(path, setup, {"typical_error": 0.1})
    assert read_setup(path) == setup


def test_what_has_a_default_may_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "setup.json"
    step_time = {"step": 1, "prompt_token": 1, "pair": 0, "generation": 0, "context_token": 0}
    worker = {"name": "mine", "num_blocks": 100, "step_time": step_time}
    path.write_text(json.dumps({"worker": worker}))
    setup = read_setup(path)
    assert setup == WorkerSetup("mine", 100, StepTime(1, 1, 0, 0, 0))


def changed(**changes: Any) -> dict[str, Any]:
    step_time = {"step": 1, "prompt_token": 1, "pair": 0, "generation": 0, "context_token": 0}
    return {"worker": {"name": "a", "num_blocks": 9, "step_time": step_time, **changes}}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([], "there is no JSON object 'worker'"),
        ({"worker": 3}, "there is no JSON object 'worker'"),
        (changed(step_time=None), "there is no JSON object 'step_time'"),
        (changed(step_time={"step": 1}), "worker.step_time.prompt_token is missing"),
        ({"worker": {"step_time": changed()["worker"]["step_time"]}}, "worker.name is missing"),
        (changed(blocks=3), "worker.blocks is unknown; there are: name, num_blocks, "),
        (changed(num_blocks="3"), "worker.num_blocks must be of type int, and is '3'"),
        (changed(num_blocks=True), "worker.num_blocks must be of type int, and is True"),
        (changed(num_blocks=0), "worker.num_blocks must be 1 or more, and is 0"),
        (changed(max_running=9000), "max_running is 9000, more than token_budget, 8192"),
        (changed(chunk_seconds=0), "worker.chunk_seconds must be above 0, and is 0"),
        (changed(request_seconds=-1), "worker.request_seconds must be 0 or more, and is -1"),
        (changed(eviction="mru"), "worker.eviction 'mru' is unknown; there are: "),
    ],
)
def test_what_is_no_setup_is_refused(tmp_path: Path, found: object, message: str) -> None:
    path = tmp_path / "setup.json"
    path.write_text(json.dumps(found))
    with pytest.raises(ValueError, match=message) as error:
        read_setup(path)
    assert str(error.value).startswith(f"{path}: ")


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "setup.json"
    path.write_text("{")
    with pytest.raises(ValueError, match=r"setup\.json: not JSON, .*: Expecting property name"):
        read_setup(path)
