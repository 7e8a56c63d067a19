import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("512MiB", 512 * 2**20),
        ("512Mi", 512 * 2**20),
        ("512 mib", 512 * 2**20),
        ("1.5GB", 1_500_000_000),
        ("2g", 2_000_000_000),
        ("1TiB", 2**40),
        ("7B", 7),
    ],
)
def test_what_people_write(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1e9", "12XB", "1.GB", "1,5GB", "5 M iB", "٣MB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        parse_size(text)


@pytest.mark.parametrize("text", ["0", "0GiB", "0.1"])
def test_nothing_is_too_little(text: str) -> None:
    with pytest.raises(ValueError, match="less than one byte"):
        parse_size(text)


@given(st.integers(1, 2**50))
def test_a_plain_number_is_bytes(size: int) -> None:
    assert parse_size(str(size)) == size
