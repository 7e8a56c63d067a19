"""What all tests share: one thread per process, Hypothesis without deadlines, the tiny models."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.models import make_tiny

# NOTE: read when torch is first imported, and inherited by the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("radixgate", deadline=None)
settings.load_profile("radixgate")


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("models") / "tiny-llama", "llama")


@pytest.fixture(scope="session")
def tiny_qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("models") / "tiny-qwen3", "qwen3")
