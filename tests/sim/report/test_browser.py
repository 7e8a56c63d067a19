"""Reports open in a browser, which has nothing to complain about."""

import re
from pathlib import Path

import pytest

from sim.report.html import comparison_report, sweep_report
from sim.summary import Slo, summarize
from tests.sim.report.chromium import PROGRAM, Opened, opened, screenshot
from tests.sim.runs import synthetic_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no chromium is installed"),
]

SLO = Slo(ttft_seconds=0.6)
POLICIES = ("cost", "round_robin", "<b onload=fail()>&amp;")


def comparison() -> str:
    runs = [synthetic_run(policy, seed=seed) for seed, policy in enumerate(POLICIES)]
    return comparison_report(runs, SLO, "radixgate simulate --trace '<b>'")


def sweep() -> str:
    runs = [
        synthetic_run(settings={"workers": str(count), "kv_format": name}, gpus=count)
        for count in (2, 10)
        for name in ("none", "int8")
    ]
    return sweep_report([summarize(run, SLO) for run in runs], SLO, price=2.5)


def shown(folder: Path, document: str) -> Opened:
    page = folder / "report.html"
    page.write_text(document, "utf-8")
    return opened(page)


@pytest.mark.parametrize("report", [comparison, sweep])
def test_the_console_stays_empty(report: object, tmp_path: Path) -> None:
    got = shown(tmp_path, report())
    assert got.console == []
    assert "</svg>" in got.dom


@pytest.mark.parametrize(
    "fault",
    [
        "<script>fail()</script>",
        "<script src='absent.js'></script>",
        "<img src='https://example.invalid/a.png'>",
        "<svg><path d='M oops'/></svg>",
    ],
)
def test_the_console_tells_of_faults(fault: str, tmp_path: Path) -> None:
    assert shown(tmp_path, comparison().replace("</main>", f"{fault}</main>")).console


def press(document: str, header: str, times: int) -> str:
    """The document, with a script that presses the first header of that text."""
    find = f"[...document.querySelectorAll('th button')].find((b) => b.innerText === '{header}')"
    return document.replace("</body>", f"<script>{f'{find}.click();' * times}</script></body>")


@pytest.mark.parametrize("times", [1, 2])
def test_pressing_a_header_sorts(times: int, tmp_path: Path) -> None:
    got = shown(tmp_path, press(comparison(), r"TTFT s\np99", times))
    assert got.console == []
    rows = re.findall(r"<tr>(<td.*?)</tr>", got.dom)[: len(POLICIES)]
    values = [float(re.findall(r'data-value="([^"]*)"', row)[3]) for row in rows]
    assert len(set(values)) == len(POLICIES)
    assert values == sorted(values, reverse=times == 2)


def test_settings_are_sorted_as_numbers(tmp_path: Path) -> None:
    got = shown(tmp_path, press(sweep(), "workers", 1))
    assert re.findall(r"<tr><td>(\d+)</td>", got.dom) == ["2", "2", "10", "10"]


def test_a_screenshot_is_of_the_page(tmp_path: Path) -> None:
    page, image = tmp_path / "report.html", tmp_path / "report.png"
    page.write_text(comparison(), "utf-8")
    screenshot(page, image, 700)
    header = image.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    assert [int.from_bytes(header[at : at + 4]) for at in (16, 20)] == [1000, 700]
