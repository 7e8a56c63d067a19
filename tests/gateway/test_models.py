"""Which model a request means, with workers or without."""

from collections.abc import Sequence

import pytest
from grpc import StatusCode
from radixgate.refused import RefusedError

from gateway.fleet.fleet import Fleet
from gateway.serve.models import Models, parse_aliases
from gateway.summary.events import Departed, Registered, Registration
from tests.gateway.doubles import make_card


def registration(model: str) -> Registration:
    return Registration("w", 1, "w:1", model, make_card(model).fingerprint, 16, 64, 1000)


def make(
    *with_worker: str, without: tuple[str, ...] = (), aliases: Sequence[str] = ()
) -> tuple[Fleet, Models]:
    fleet = Fleet(lease=5.0, clock=lambda: 0.0)
    for model in with_worker:
        fleet.observe(model, Registered(registration(model), 0))
        fleet.admit(registration(model), make_card(model))
    known = [*with_worker, *without]
    return fleet, Models(fleet, lambda: known, parse_aliases(aliases))


def refusal(models: Models, name: str) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        models.card(name)
    return caught.value


def test_a_name_means_that_model_and_none_the_only_one() -> None:
    _, models = make("m", "n")
    assert models.card("n").model == "n"
    _, models = make("m", without=("gone",))
    assert models.card("").model == "m"
    _, models = make(without=("gone",))
    assert models.resolve("") == "gone"


def test_what_cannot_be_meant_is_refused() -> None:
    _, models = make("m", "n")
    unnamed, unknown = refusal(models, ""), refusal(models, "x")
    assert (unnamed.code, unknown.code) == (StatusCode.INVALID_ARGUMENT, StatusCode.NOT_FOUND)
    assert unnamed.message.endswith("there are m, n")
    assert unknown.message == "model 'x' is not served; there are m, n"
    _, models = make(without=("m", "n"))
    assert refusal(models, "").code is StatusCode.INVALID_ARGUMENT


def test_what_may_come_is_unavailable() -> None:
    _, models = make()
    for name in ("", "m"):
        assert refusal(models, name).code is StatusCode.UNAVAILABLE
        assert refusal(models, name).message.startswith("no worker has registered")
    fleet, models = make("m")
    fleet.refuse(registration("m"), "its hashes differ")
    assert refusal(models, "m").message == "model 'm' has no worker now: w: its hashes differ"
    fleet.observe("m", Departed("w", 1))
    assert refusal(models, "m").message == "model 'm' has no worker now"
    assert refusal(models, "m").code is StatusCode.UNAVAILABLE


def test_an_alias_means_its_model_and_nothing_else_means_less_for_it() -> None:
    _, models = make("m", "n", aliases=["fast=m", "cheap = m", "fast=m"])
    assert models.card("fast").model == models.card("cheap").model == "m"
    assert models.card("n").model == "n"
    assert (models.aliases("m"), models.aliases("n")) == (["cheap", "fast"], [])
    assert [models.meant(name) for name in ("fast", "n", "x", "")] == ["m", "n", "x", ""]
    assert refusal(models, "").code is StatusCode.INVALID_ARGUMENT


def test_an_alias_that_cannot_be_meant_is_refused() -> None:
    _, models = make("m", aliases=["fast=gone", "m=other"])
    unknown, clash = refusal(models, "fast"), refusal(models, "m")
    assert unknown.code is StatusCode.NOT_FOUND
    assert unknown.message == (
        "model 'fast' is an alias of 'gone', which is not served; there are m"
    )
    assert clash.code is StatusCode.FAILED_PRECONDITION
    assert clash.message == (
        "model 'm' is served, and at this gateway an alias of 'other'; rename one"
    )
    _, models = make(aliases=["fast=m"])
    assert refusal(models, "fast").code is StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["fast"], "alias 'fast': write ALIAS=MODEL"),
        (["=m"], "alias '=m': write ALIAS=MODEL"),
        (["fast="], "alias 'fast=': write ALIAS=MODEL"),
        (["fast=m", "fast=n"], "alias 'fast' means 'm' and 'n'"),
        (["faster=fast", "fast=m"], "alias 'faster' means 'fast', itself an alias; name 'm'"),
        (["m=m"], "alias 'm' means 'm', itself an alias"),
    ],
)
def test_aliases_that_cannot_be_are_named(texts: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_aliases(texts)
