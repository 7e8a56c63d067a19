"""Compiled code is kept where it may be, and computes as well where it may not."""

import subprocess
import sys
from pathlib import Path

import numba
import pytest
from numba.core.caching import FunctionCache

from worker.kernels.cache import keep

pytestmark = pytest.mark.slow


def twice(number: int) -> int:
    """The same in each test, compiled anew."""
    return 2 * number


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RADIXGATE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_what_was_compiled_is_read_again(home: Path) -> None:
    for hits in (0, 1):
        compiled = numba.njit(twice)
        keep(compiled)
        assert compiled(4) == 8
        assert sum(compiled.stats.cache_hits.values()) == hits
    assert list((home / "kernels").glob("*/*/*.nbc"))


def test_other_sources_have_another_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        monkeypatch.setattr("worker.kernels.cache._digest", lambda number=number: str(number))
        compiled = numba.njit(twice)
        keep(compiled)
        assert compiled(4) == 8
        assert not compiled.stats.cache_hits


def test_a_folder_that_cannot_be_written_is_a_warning(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home.write_text("no directory")
    compiled = numba.njit(twice)
    keep(compiled)
    assert "their cache cannot be written" in caplog.text
    assert compiled(4) == 8


def test_a_full_disk_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FunctionCache, "save_overload", full)
    compiled = numba.njit(twice)
    keep(compiled)
    assert compiled(4) == 8
    assert "No space left on device" in caplog.text


def test_a_folder_of_the_environment_goes_first(tmp_path: Path, home: Path) -> None:
    code = (
        "import numba; from worker.kernels.cache import keep; from tests.kernels.test_cache "
        "import twice; f = numba.njit(twice); keep(f); f(4)"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        env={"NUMBA_CACHE_DIR": str(tmp_path / "given"), "PYTHONPATH": ":".join(sys.path)},
        check=True,
    )
    assert list((tmp_path / "given").glob("*/*/*.nbc"))
    assert not home.exists()
