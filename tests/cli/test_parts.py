"""`radixgate gateway` and `worker` that cannot start say why in one line, and end with 1."""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from worker.model.compiled import OtherKindError


@pytest.fixture
def taken_port() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield str(taken.getsockname()[1])


def assert_refused(run: Run, arguments: list[str], *words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 1, result.stderr
    message = result.stderr.rpartition("error: ")[2]
    assert message.count("\n") == 1, result.stderr
    for word in words:
        assert word in message


@pytest.mark.slow
def test_a_gateway_whose_port_is_taken(run: Run, taken_port: str) -> None:
    assert_refused(run, ["gateway", "--port", taken_port], f"127.0.0.1:{taken_port}")


@pytest.mark.slow
def test_several_gateway_processes_whose_port_is_taken(run: Run, taken_port: str) -> None:
    arguments = ["gateway", "--port", taken_port, "--processes", "2"]
    assert_refused(run, arguments, f"127.0.0.1:{taken_port}", "another program")


@pytest.mark.slow
def test_several_gateway_processes_with_a_wrong_redis_url(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["gateway", "--port", "0", "--processes", "2", "--redis", "localhost:6379"]
    assert_refused(run, arguments, "exit code 1 before it could serve", "its log above")
    assert "error: Redis URL 'localhost:6379'" in capfd.readouterr().err


@pytest.mark.slow
def test_a_gateway_with_a_wrong_redis_url(run: Run) -> None:
    assert_refused(run, ["gateway", "--port", "0", "--redis", "localhost:6379"], "localhost:6379")


def test_a_gateway_with_wrong_weights(run: Run) -> None:
    arguments = ["gateway", "--port", "0", "--tenant-weights", "acme:0"]
    assert_refused(run, arguments, "'acme:0'", "such as acme:3")


def test_a_gateway_with_an_alias_of_two_models(run: Run) -> None:
    arguments = ["gateway", "--port", "0", "--alias", "fast=m", "--alias", "fast=n"]
    assert_refused(run, arguments, "alias 'fast' means 'm' and 'n'")


@pytest.mark.slow
def test_a_worker_whose_port_is_taken(run: Run, tiny_llama: Path, taken_port: str) -> None:
    arguments = ["worker", "--model", str(tiny_llama), "--port", taken_port]
    assert_refused(run, arguments, f"127.0.0.1:{taken_port}")


@pytest.mark.slow
def test_a_worker_with_no_room_for_kv(run: Run, tiny_llama: Path) -> None:
    arguments = ["worker", "--model", str(tiny_llama), "--kv-memory", "1KiB"]
    assert_refused(run, arguments, "1024")


@pytest.mark.slow
def test_a_worker_with_an_unknown_kv_format(run: Run, tiny_llama: Path) -> None:
    arguments = ["worker", "--model", str(tiny_llama), "--kv-format", "int3"]
    assert_refused(run, arguments, "int3", "int8")


@pytest.mark.slow
def test_a_worker_on_a_gpu_that_is_not_there(run: Run, tiny_llama: Path) -> None:
    arguments = ["worker", "--model", str(tiny_llama), "--device", "cuda:99"]
    assert_refused(run, arguments, "device 'cuda:99' was asked for", "or take cpu")


@pytest.mark.slow
def test_int8_weights_for_a_model_that_is_not_compiled(
    run: Run, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(*_: object) -> None:
        raise OtherKindError("it has no gates")

    monkeypatch.setattr("worker.model.loader.CompiledModel", other)
    arguments = ["worker", "--model", str(tiny_llama), "--device", "cpu", "--weights", "int8"]
    assert_refused(run, arguments, "int8 weights", "it has no gates", "take --weights float32")


@pytest.mark.slow
def test_a_worker_with_half_a_model(run: Run, tiny_llama: Path, tmp_path: Path) -> None:
    half = shutil.copytree(tiny_llama, tmp_path / "half")
    weights = half / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert_refused(run, ["worker", "--model", str(half)], "incomplete", "model.safetensors")


@pytest.mark.slow
def test_a_worker_with_an_architecture_that_is_not_supported(
    run: Run, tiny_llama: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(tiny_llama, tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    config |= {"model_type": "bert", "architectures": ["BertModel"]}
    (other / "config.json").write_text(json.dumps(config))
    assert_refused(run, ["worker", "--model", str(other)], "bert")


def test_a_worker_whose_model_was_not_pulled(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RADIXGATE_HOME", str(tmp_path))
    arguments = ["worker", "--model", "owner/name"]
    assert_refused(run, arguments, "radixgate model pull owner/name")


@pytest.mark.parametrize(
    ("missing", "arguments", "advice"),
    [
        ("typer", ["workers"], "pip install 'radixgate[cli]'"),
        ("redis", ["gateway"], "pip install 'radixgate[gateway]'"),
        ("torch", ["worker", "--model", "."], "pip install 'radixgate[worker]'"),
    ],
)
def test_a_library_that_is_not_installed(missing: str, arguments: list[str], advice: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; from cli.main import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert advice in result.stderr
    assert "Traceback" not in result.stderr
