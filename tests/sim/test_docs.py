"""What the documentation says of the simulator is what it takes."""

import re
import shlex
from pathlib import Path

import pytest

from sim.plan import SWEPT, policy_names
from sim.policy.catalogue import CATALOGUE
from sim.sweep import combinations
from sim.trace.chats import ANSWERS, SESSIONS, TIMES
from sim.trace.formats import open_trace
from sim.trace.generate.spec import generated, is_generated
from tests.cli.parsing import options, parsed

DOCS = Path(__file__).parents[2] / "docs"
COMMAND = re.compile(r"^ {4,8}(radixgate simulate (?:.*\\\n)*.*)$", re.MULTILINE)
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")}
EXAMPLES = [
    re.sub(r" > \S+$", "", found.replace("\\\n", " "))
    for text in TEXTS.values()
    for found in COMMAND.findall(text)
]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 5


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_is_understood(line: str) -> None:
    found = parsed(shlex.split(line)[1:])
    if found["calibrate"]:
        assert found["out"]
        return
    assert policy_names(str(found["policy"]))
    assert combinations(str(found["sweep"] or "").split(), SWEPT)
    traces = found["trace"]
    assert isinstance(traces, list | tuple)
    assert traces
    for trace in traces:
        assert not is_generated(trace) or generated(trace).requests


def test_options_that_are_told_of_exist() -> None:
    told = set(re.findall(r"--[a-z][a-z-]*", TEXTS["simulator.md"]))
    assert told
    assert told <= options("simulate") | options("gateway")


def test_the_lines_of_a_chat_log_are_read(tmp_path: Path) -> None:
    section = TEXTS["simulator.md"].split("### A log of chats")[1].split("###")[0]
    lines = re.findall(r"^    (\{.*\})$", section, re.MULTILINE)
    assert len(lines) == 2
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(lines))
    assert [each.session for each in open_trace(log, "chats").requests] == ["a", "b"]
    known = set(
        re.findall(r"`(.*?)`", "".join(re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)))
    )
    assert known >= {*TIMES, *SESSIONS, *ANSWERS}


def test_the_table_of_policies_has_them_all() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", TEXTS["policies.md"].split("## ")[0], re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`(.*?)`", row)]
    assert names == list(dict.fromkeys(names))
    assert set(names) == set(CATALOGUE)
