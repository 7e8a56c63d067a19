import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.sizes import parse_size, size_text


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


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (66 * 1024, "66 KiB"),
        (16_060_522_496, "14.96 GiB"),
        (5 * 2**50, "5120 TiB"),
    ],
)
def test_what_people_read(size: int, text: str) -> None:
    assert size_text(size) == text
