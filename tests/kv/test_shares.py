"""Shares of tenants: what people may write, and what they are told when it is wrong."""

import pytest

from worker.kv.memory import MemoryPolicy
from worker.kv.shares import OTHERS, Share, parse_shares


def test_shares_as_people_write_them() -> None:
    assert parse_shares("") == {}
    assert parse_shares("acme:0.3-0.8, beta:0.2,*:0-0.5") == {
        "acme": Share(0.3, 0.8),
        "beta": Share(0.2, 1.0),
        OTHERS: Share(0.0, 0.5),
    }
    assert parse_shares("a:b:0.5") == {"a:b": Share(0.5)}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("acme", "tenant share 'acme'"),
        ("acme:much", "tenant share 'acme:much': could not convert"),
        ("acme:0.5-0.4", "a share of 0.5 to 0.4"),
        ("acme:nan", "a share of nan to 1"),
        ("acme:0-0", "a maximum above 0"),
        (":0.5", "must name another tenant"),
        ("a:0.1,a:0.2", "must name another tenant"),
    ],
)
def test_wrong_shares_are_refused_with_what_to_write(text: str, found: str) -> None:
    with pytest.raises(ValueError, match=found) as caught:
        parse_shares(text)
    assert "acme:0.3-0.8" in str(caught.value)


def test_a_part_of_the_memory_is_between_none_and_all_of_it() -> None:
    with pytest.raises(ValueError, match=r"pin share 1.5 is outside \[0, 1\]"):
        MemoryPolicy(pin_share=1.5)
