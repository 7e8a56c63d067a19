"""Tables lose nothing, however narrow the place where they are printed."""

import io
import subprocess
import sys
from collections import Counter

import pytest
from radixgate.v1.gateway_pb2 import Candidate, Trust, WorkerInfo
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from cli import output
from cli.output import compact_table, print_table, trust_label

TEXTS = ("vllm-pool-a-7d9f8c-x2x4q", "[fd00:1234::17]:50054", "1234567890")
WIDE = sum(map(len, TEXTS)) + 2 * len(TEXTS)


@pytest.mark.parametrize("width", [16, 40, WIDE, 10_000])
def test_no_cell_and_no_header_is_cut(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(output, "answers", Console(file=file, width=width, emoji=False))
    headers = ("worker", "address", "tokens")
    table = compact_table("", headers, numbers=("tokens",))
    table.add_row(*map(escape, TEXTS))
    print_table(table)
    lines = file.getvalue().splitlines()
    printed = "".join(file.getvalue().replace("─", "").split())
    assert Counter(printed) == Counter("".join((*headers, *TEXTS)))
    assert max(map(len, lines)) <= width
    assert (tuple(lines[-2].split()) == TEXTS) == (width >= WIDE)


def test_trust_is_told_as_it_was_worded() -> None:
    failed = Candidate(trust=Trust.TRUST_LIVE, circuit="failed 3 times ([Errno 1])")
    suspect = WorkerInfo(trust=Trust.TRUST_SUSPECT, trust_reason="silent for 3.1 s")
    labels = [trust_label(WorkerInfo(trust=Trust.TRUST_LIVE)), trust_label(suspect)]
    shown = [Text.from_markup(label).plain for label in [*labels, trust_label(failed)]]
    assert shown == [
        "live",
        "suspect: silent for 3.1 s",
        "left alone: failed 3 times ([Errno 1])",
    ]


def test_a_pipe_is_as_wide_as_a_table_needs() -> None:
    ask = "from cli.output import answers; print(answers.width)"
    assert int(subprocess.check_output([sys.executable, "-c", ask])) >= 10_000
