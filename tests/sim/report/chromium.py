"""Opens a page in headless Chromium, and tells what its console says.

    python -m tests.sim.report.chromium REPORT.html OUT.png [HEIGHT]

writes a screenshot of a report, a thousand pixels wide, from its top.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

_QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--v=0",
)


class Opened(NamedTuple):
    """Args: `console`, every message of the page, of whatever level; `dom`, as HTML, when its
    scripts have run.
    """

    console: list[str]
    dom: str


def opened(page: Path) -> Opened:
    """What became of the page."""
    ran = _chromium(page, "--dump-dom")
    return Opened(re.findall(r"^\[.*\bCONSOLE\b.*", ran.stderr, re.MULTILINE), ran.stdout)


def screenshot(page: Path, image: Path, height: int) -> None:
    """Write the page's uppermost `height` pixels as a PNG."""
    _chromium(page, f"--screenshot={image.absolute()}", f"--window-size=1000,{height}")
    if not image.exists():
        raise RuntimeError(f"Chromium wrote no {image}")


def _chromium(page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    if PROGRAM is None:
        raise RuntimeError("no chromium is installed: apt-get install chromium")
    with tempfile.TemporaryDirectory() as profile:
        command = [PROGRAM, *_QUIET, f"--user-data-dir={profile}", *options]
        command.append(page.absolute().as_uri())
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)


if __name__ == "__main__":
    source, target, *tall = sys.argv[1:]
    screenshot(Path(source), Path(target), int(*tall or ["1600"]))
