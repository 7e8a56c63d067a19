from pathlib import Path

import pytest

from cli.exits import CommandError
from cli.supervisor import Supervisor, ending


def test_how_a_part_ended() -> None:
    assert ending(3) == "ended with exit code 3"
    assert ending(-9) == "was killed by SIGKILL"


def test_a_part_that_ends_is_named_with_its_last_lines(tmp_path: Path) -> None:
    with Supervisor(tmp_path / "logs") as fleet:
        fleet.start("the-part", "nonsense")
        with pytest.raises(CommandError, match=r"the-part ended with exit code 2[\s\S]*nonsense"):
            fleet.watch()


def test_what_comes_too_late_is_told(tmp_path: Path) -> None:
    with (
        Supervisor(tmp_path) as fleet,
        pytest.raises(CommandError, match="after 0 s: nothing came"),
    ):
        fleet.wait_until(lambda: None, 0, lambda: "nothing came")


def test_all_parts_end_with_the_context(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as fleet:
        parts = [fleet.start(name, "gateway", "--port", "0") for name in ("one", "two")]
    assert all(part.process.returncode is not None for part in parts)
