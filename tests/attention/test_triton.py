"""Runs `triton_cases.py` in Triton's interpreter, which needs no GPU, in a process of its own.

NOTE: Triton reads TRITON_INTERPRET once, when it is imported.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from worker.attention.default import default_attention
from worker.attention.torch_backend import TorchAttention

CASES = Path(__file__).with_name("triton_cases.py")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_equals_float64_in_the_interpreter() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", CASES],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def test_triton_is_the_default_on_cuda() -> None:
    backend = pytest.importorskip("worker.attention.triton_backend", reason="needs triton")
    for dtype in (torch.float32, torch.bfloat16):
        assert isinstance(default_attention(torch.device("cuda"), dtype), backend.TritonAttention)


def test_without_triton_torch_is_the_default(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "worker.attention.triton_backend", None)
    assert isinstance(default_attention(torch.device("cuda"), torch.bfloat16), TorchAttention)
    assert "computed by torch" in caplog.text
