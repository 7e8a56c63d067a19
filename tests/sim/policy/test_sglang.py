"""What SGLang's documentation promises of its `cache_aware` and `prefix_hash`."""

from collections import Counter

import pytest

from sim.policy import sglang
from sim.policy.prefix_hash import PrefixHash
from sim.policy.sglang import SglangCacheAware
from tests.sim.policy.site import STRIDE, Client, FakeSite


def test_a_known_prefix_goes_where_it_was_sent() -> None:
    site = FakeSite(4)
    client = Client(SglangCacheAware(site), site)
    home = client.send("abcd").worker
    for _ in range(20):
        assert client.send("abcde").worker == home
    assert client.send("abcdfgh") == (home, 4 * STRIDE)


def test_a_match_of_no_more_than_the_threshold_goes_to_the_least_loaded() -> None:
    site = FakeSite(2)
    client = Client(SglangCacheAware(site), site)
    first = client.send("abc").worker
    assert client.send("abc" + "defghij").worker != first  # NOTE: 3 of 10 strides are 0.3
    first = client.send("klm").worker
    assert client.send("klm" + "nopqrs").worker == first  # NOTE: 3 of 9


def test_unknown_prompts_are_spread_by_load() -> None:
    site = FakeSite(4)
    client = Client(SglangCacheAware(site), site)
    assert len({client.send(text).worker for text in "abcd"}) == 4


def test_load_decides_once_both_thresholds_are_passed() -> None:
    site = FakeSite(2)
    client = Client(SglangCacheAware(site), site)
    workers = [client.send("abcd").worker for _ in range(66)]
    assert workers[:65] == [workers[0]] * 65
    assert workers[65] != workers[0]


def test_a_difference_above_64_is_borne_while_it_is_less_than_half() -> None:
    site = FakeSite(2)
    policy = SglangCacheAware(site)
    client = Client(policy, site)
    home = client.send("abcd").worker
    other = "w1" if home == "w0" else "w0"
    policy.in_flight.update({home: 300, other: 200})
    assert client.send("abcd").worker == home
    policy.in_flight.update({home: 301, other: 200})
    assert client.send("abcd").worker == other


def test_of_several_that_were_sent_the_prefix_one_is_drawn() -> None:
    site = FakeSite(3)
    policy = SglangCacheAware(site)
    client = Client(policy, site)
    homes = [client.send("a" + rest * 4).worker for rest in "bcd"]
    assert len(set(homes)) == 3
    assert {client.send("a" + f"{number:02}").worker for number in range(40)} == set(homes)


def test_trees_are_cut_back_to_their_size_every_two_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sglang, "TREE_TOKENS", 4 * STRIDE)
    site = FakeSite(1)
    client = Client(SglangCacheAware(site), site)
    client.send("abcd")
    client.send("efgh")
    assert client.send("abcd").expected_tokens == 4 * STRIDE
    site.now = 120.0
    assert client.send("efgh").expected_tokens == 0
    assert client.send("abcd").expected_tokens == 4 * STRIDE


def test_prefix_hash_goes_by_the_beginning() -> None:
    site = FakeSite(8)
    policy = PrefixHash(site, prefix_tokens=2 * STRIDE)
    client = Client(policy, site)
    for number, rest in enumerate("abcdef"):
        client.send("xy" + rest)
        client.end(number)
    assert len({worker for _, (worker, _) in site.sent}) == 1
    for number, first in enumerate("klmnopqrstuvwxyz", start=6):
        client.send(first + "y")
        client.end(number)
    assert len({worker for _, (worker, _) in site.sent}) > 3


def test_prefix_hash_bounds_the_load() -> None:
    site = FakeSite(4)
    client = Client(PrefixHash(site, prefix_tokens=2 * STRIDE), site)
    counts: Counter[str] = Counter()
    for total in range(1, 200):
        worker = client.send("xyz").worker
        before = counts[worker]
        bound = 1.25 * total / 4
        assert before <= bound or total == 1
        counts[worker] += 1
    home, most = counts.most_common(1)[0]
    assert client.worker(0) == home
    assert most > 1.2 * 199 / 4


def test_prefix_hash_takes_the_least_loaded_when_the_owner_has_too_many() -> None:
    site = FakeSite(3)
    policy = PrefixHash(site)
    client = Client(policy, site)
    home = client.send("x").worker
    rest = [worker for worker in policy.in_flight if worker != home]
    policy.in_flight.update({home: 9, rest[0]: 2, rest[1]: 1})
    assert client.send("x").worker == rest[1]
