"""Files as they come: compressed, cut off, empty, of no known format."""

import gzip
from pathlib import Path

import pytest

from sim.trace.formats import FORMATS, open_trace
from sim.trace.row import TraceError
from tests.sim.trace.files import json_lines, text

ROWS = [
    {"timestamp": 10 * n, "input_length": 600, "output_length": 7, "hash_ids": [5, n]}
    for n in range(200)
]


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A trace of 200 requests."""
    return json_lines(tmp_path / "plain", ROWS)


def test_what_is_compressed_is_seen_from_its_bytes(plain: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert open_trace(packed).requests == open_trace(plain).requests


def test_compressed_data_that_is_cut_off_is_no_shorter_trace(plain: Path, tmp_path: Path) -> None:
    packed = gzip.compress(plain.read_bytes())
    (tmp_path / "cut").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(TraceError, match=r"cut: the compressed data is cut off or damaged"):
        open_trace(tmp_path / "cut")
    (tmp_path / "bad").write_bytes(packed[:200] + b"\xff" * 20 + packed[220:])
    with pytest.raises(TraceError, match=r"bad: the compressed data is cut off or damaged"):
        open_trace(tmp_path / "bad")


def test_blank_lines_count_but_say_nothing(tmp_path: Path) -> None:
    row = '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": []}'
    file = text(tmp_path / "t", "", row, "  ", row, "")
    assert len(open_trace(file).requests) == 2
    with pytest.raises(TraceError, match="t, line 4: not JSON"):
        open_trace(text(tmp_path / "t", "", row, "", row[:-1]))


def test_a_mark_of_byte_order_is_no_field(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"\xef\xbb\xbfTIMESTAMP,ContextTokens,GeneratedTokens\n0,5,1\n")
    assert open_trace(tmp_path / "t").requests[0].prompt.tokens == 5


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "t: empty: there is no request in it"),
        (b"\n \n", "t: empty: there is no request in it"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\n", "t: empty: there is no request in it"),
        (b'{"id": 1}\n', r"t: no format is known by the fields id; .*mooncake: input_length"),
        (b"a,b\n1,2\n", "t: no format is known by the fields a, b"),
        (b"hello\n\n1,2\n", "line 3: 2 columns, and the first line names 1: hello"),
        (b"a\n" + b"x" * 200_000 + b"\n", "line 2: not CSV"),
        (b"\xff\xfe\x00", "t: not text in UTF-8: "),
        (b'{"a": 1}\n[1]\n', "t: no format"),
        (b'[{"a": 1}]\n', "line 1: a JSON array; wanted is JSON Lines"),
        (b'\n{"a": 1\n', "line 2: not JSON: Expecting ',' delimiter, at character 8$"),
        (b'{"a": ' + b"[" * 100_000 + b"\n", "line 1: not JSON"),
    ],
)
def test_what_is_no_trace_is_told(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(TraceError, match=told):
        open_trace(tmp_path / "t")


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none: cannot be read: No such file or directory"):
        open_trace(tmp_path / "none")
    with pytest.raises(TraceError, match=r"cannot be read: Is a directory"):
        open_trace(tmp_path)


def test_the_format_may_be_said(plain: Path) -> None:
    assert open_trace(plain, "mooncake").requests == open_trace(plain).requests
    with pytest.raises(TraceError, match="'TIMESTAMP' is missing"):
        open_trace(plain, "azure")
    with pytest.raises(TraceError, match=f"format 'csv': there are {', '.join(FORMATS)}"):
        open_trace(plain, "csv")


def test_a_line_must_be_an_object(plain: Path) -> None:
    with plain.open("a") as file:
        file.write('["no", "object"]\n')
    with pytest.raises(TraceError, match=r'line 201: must be a JSON object, and is \["no"'):
        open_trace(plain)
