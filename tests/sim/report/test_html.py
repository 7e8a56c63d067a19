"""Pages are complete in themselves, and show names as they are."""

import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from sim.report.html import comparison_report, sweep_report
from sim.report.table import sheets
from sim.summary import Slo, summarize
from tests.sim.runs import synthetic_run

SLO = Slo(ttft_seconds=0.6)
HOSTILE = "</script><script>alert('$x$ \"1\"')</script> & <!-- -->"


class Page(HTMLParser):
    """Counts tags, collects ids, references, and the text outside of scripts and styles."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.references: list[str] = []
        self.text = ""
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            if name == "id":
                self.ids[value] += 1
            elif name in ("src", "href", "xlink:href"):
                self.references.append(value)
            elif name == "aria-labelledby":
                self.references += (f"#{label}" for label in value.split())
            self.references += re.findall(r"url\(([^)]*)\)", value or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def comparison(names: list[str], trace: str = "chats", **values: object) -> str:
    runs = [
        synthetic_run(name, seed=seed, trace=trace, **values) for seed, name in enumerate(names)
    ]
    return comparison_report(runs, SLO, f"radixgate simulate {trace}")


def sweep(**values: object) -> str:
    runs = [
        synthetic_run(settings={"workers": str(count), "kv_format": name}, gpus=count, **values)
        for count in (2, 4)
        for name in (HOSTILE, "none")
    ]
    easy = Slo(ttft_seconds=60, itl_seconds=1)
    return sweep_report([summarize(run, easy) for run in runs], easy)


DOCUMENTS = {
    "comparison": lambda: comparison(["cost", "random", HOSTILE], HOSTILE),
    "two traces": lambda: comparison_report(
        [synthetic_run(trace="a"), synthetic_run(trace="b")], SLO
    ),
    "sweep": sweep,
    "all refused": lambda: comparison(["cost"], refused=1.0),
    "no requests": lambda: comparison(["cost"], count=0),
    "sweep, all refused": lambda: sweep(refused=1.0),
    "one worker": lambda: comparison(["cost"], workers=1),
    "30 policies": lambda: comparison([f"policy-{place}" for place in range(30)], count=5),
}


@pytest.fixture(scope="module", params=DOCUMENTS)
def document(request: pytest.FixtureRequest) -> str:
    return DOCUMENTS[request.param]()


def test_nothing_is_loaded_and_every_reference_is_found(document: str) -> None:
    page = Page(document)
    assert max(page.ids.values()) == 1
    outer = [each for each in page.references if not each.startswith(("data:", "#"))]
    assert outer == []
    inner = {each.removeprefix("#") for each in page.references if each.startswith("#")}
    assert inner <= set(page.ids)


@pytest.mark.parametrize("name", ["comparison", "sweep"])
def test_names_stay_names(name: str) -> None:
    document = DOCUMENTS[name]()
    page = Page(document)
    assert page.tags["script"] == 1
    assert HOSTILE not in document
    assert HOSTILE in page.text
    for plot in re.findall(r"<svg.*?</svg>", document, re.DOTALL):
        texts = [each.text or "" for each in ElementTree.fromstring(plot).iter()]
        assert HOSTILE in texts


def test_plots_are_well_formed_and_speak(document: str) -> None:
    plots = re.findall(r"<svg.*?</svg>", document, re.DOTALL)
    assert plots
    for plot in plots:
        root = ElementTree.fromstring(plot)
        title, description = root[0], root[1]
        assert title.tag.endswith("title")
        assert description.tag.endswith("desc")
        assert title.text
        assert description.text
        assert root.get("role") == "img"


def test_both_modes_have_colours_of_their_own(document: str) -> None:
    assert "prefers-color-scheme: dark" in document
    for plot in re.findall(r"<svg.*?</svg>", document, re.DOTALL):
        assert "var(--ink)" in plot
        assert not re.search(r"#0[147]0[258]0[369]\b", plot)
        assert "#000000" not in plot


def test_a_page_has_what_the_terminal_has() -> None:
    runs = [
        synthetic_run(name, seed=seed, refused=0.1) for seed, name in enumerate(["cost", "random"])
    ]
    page = Page(comparison_report(runs, SLO, "radixgate simulate --trace x"))
    for sheet in sheets([summarize(run, SLO) for run in runs], SLO):
        assert sheet.title in page.text
        for row in sheet.rows:
            assert "".join(cell.text for cell in row) in page.text
        assert all(note in page.text for note in sheet.notes)
    assert "refused, full: cost " in page.text
    assert "radixgate simulate --trace x" in page.text


def test_the_same_runs_give_the_same_page() -> None:
    assert comparison(["cost", "random"]) == comparison(["cost", "random"])


def test_who_wants_no_plots_needs_no_matplotlib() -> None:
    program = (
        "import sys, cli.sheets, sim.report.json, sim.report.sweep, sim.sweep;"
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
