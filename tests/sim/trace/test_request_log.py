"""The gateway's log, read: what requests have in common, and who follows on whom."""

import json
from base64 import b64encode
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from radixgate.namespace import Namespace
from radixgate.prefix import pack_tokens
from radixgate.v1.generate_pb2 import GenerateResponse, Tokens

from gateway.route.router import Prompt
from gateway.serve.request_log import Served, line
from sim.request import Request
from sim.trace.formats import open_trace
from sim.trace.row import TraceError
from tests.sim.trace.files import alike, json_lines

STRIDE = 4


def logged(
    prompt: list[int], output: list[int], at: float = 0.0, *, seconds: float = 1.0, tenant: str = ""
) -> dict[str, Any]:
    """A line of the log, as the gateway writes it."""
    seed = Namespace("a model", tenant=tenant).seed()
    message = GenerateResponse(tokens=Tokens(ids=output)).SerializeToString()
    found = Prompt(pack_tokens(prompt), STRIDE, seed)
    said: dict[str, Any] = json.loads(line(Served(at, seconds, "m", found, message, tenant, 2)))
    return said


def read(path: Path, *rows: dict[str, Any]) -> list[Request]:
    """The requests of a log."""
    return list(open_trace(json_lines(path, rows)).requests)


def known(request: Request) -> list[int]:
    """Prompt and answer, token for token."""
    packed = request.prompt.packed() + (request.output.packed() if request.output else b"")
    return list(memoryview(packed).cast("I"))


TOKENS = st.lists(st.integers(0, 1), max_size=14)


@given(st.lists(st.tuples(TOKENS.filter(bool), TOKENS), min_size=2, max_size=5))
def test_requests_have_in_common_what_their_tokens_have(
    tmp_path_factory: pytest.TempPathFactory, served: list[tuple[list[int], list[int]]]
) -> None:
    rows = [logged(prompt, output, float(at)) for at, (prompt, output) in enumerate(served)]
    requests = read(tmp_path_factory.mktemp("trace") / "t", *rows)
    for request, (prompt, output) in zip(requests, served, strict=True):
        assert request.prompt.tokens == len(prompt)
        assert len(known(request)) == len(prompt) + len(output)
        assert request.output_tokens == max(1, len(output))
    for (one, real_one), (other, real_other) in combinations(zip(requests, served, strict=True), 2):
        real = alike(real_one[0] + real_one[1], real_other[0] + real_other[1])
        assert alike(known(one), known(other)) == real // STRIDE * STRIDE


def test_who_begins_with_an_answer_follows_on_it(tmp_path: Path) -> None:
    first, answer = list(range(10)), list(range(20, 30))
    rows = [
        logged(first, answer, 100.0),
        logged(first, [7] * 9, 100.5, seconds=9.0),
        logged([*first, *answer, 5, 5], [6] * 8, 103.0),
        logged([*first, 7, 7, 7, 7], [6], 104.0),
        logged(first, answer, 105.0),
        logged([*first, *answer, 5, 5, *[6] * 8, 1], [1], 105.5),
    ]
    requests = read(tmp_path / "t", *reversed(rows))
    assert [each.at for each in requests] == [0.0, 0.5, 3.0, 4.0, 5.0, 5.5]
    assert [each.after for each in requests] == [None, None, 0, None, None, 2]
    assert [each.think for each in requests] == [0.0, 0.0, 2.0, 0.0, 0.0, 1.5]
    sessions = [each.session for each in requests]
    assert sessions[0] == sessions[2] == sessions[5]
    assert len(set(sessions)) == 4


def test_tenants_have_nothing_in_common(tmp_path: Path) -> None:
    prompt = list(range(8))
    one, other = read(tmp_path / "t", logged(prompt, [1]), logged(prompt, [1], tenant="acme"))
    assert alike(known(one), known(other)) == 0
    assert one.tenant == ""
    assert "acme" not in other.tenant != ""
    assert (one.priority, other.priority) == (2, 2)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hashes": "%"}, "'hashes' must be base64"),
        ({"hashes": b64encode(b"12345678").decode()}, "'hashes' must be 3 of 8 bytes, .* 8 bytes"),
        ({"stride": 8}, "'stride' is 8, and 4 in rows before; .* take the lines of one alone"),
        ({"stride": 0}, "'stride' must be an integer from 1"),
        ({"prompt_tokens": 0}, "'prompt_tokens' must be an integer from 1"),
        ({"seconds": -1}, "'seconds' must be a number, 0 or more"),
        ({"time": "1e999"}, "'time' must be a number, and is '1e999'"),
        ({"priority": 2**40}, "'priority' must be an integer from -2,147,483,648"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    row = logged(list(range(10)), [1, 2, 3])
    with pytest.raises(TraceError, match="t, line 2: " + told):
        read(tmp_path / "t", row, row | changes)
