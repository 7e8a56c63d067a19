"""Weights of tenants, as people write them."""

import pytest

from gateway.route.weights import parse_weights


def test_weights_are_those_written() -> None:
    weights = parse_weights(" acme:3, beta:0.5,*:2 ")
    assert [weights.of(name) for name in ("acme", "beta", "other", "")] == [3, 0.5, 2, 2]
    assert [weights.label(name) for name in ("acme", "other", "*")] == ["acme", "*", "*"]


def test_without_weights_all_are_equal() -> None:
    assert parse_weights("").of("anyone") == 1
    assert parse_weights("acme:3").of("anyone") == 1


def test_a_tenant_may_have_a_colon() -> None:
    assert parse_weights("team:blue:4").of("team:blue") == 4


@pytest.mark.parametrize(
    "text",
    ["acme", "acme:", ":3", "acme:0", "acme:-1", "acme:nan", "acme:inf", "a:1,a:2", "*:1,*:2"],
)
def test_what_is_wrong_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"tenant weight.* such as acme:3"):
        parse_weights(text)
