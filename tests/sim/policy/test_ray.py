"""What Ray's documentation promises of its prefix-aware router."""

from sim.policy.ray import RayPrefixAffinity
from tests.sim.policy.site import STRIDE, Client, FakeSite


def test_a_tenth_of_a_prefix_is_enough() -> None:
    site = FakeSite(3)
    client = Client(RayPrefixAffinity(site), site)
    home = client.send("a").worker
    assert client.send("a" + "bcdefghij") == (home, STRIDE)


def test_less_goes_to_whoever_was_sent_the_least() -> None:
    site = FakeSite(3)
    client = Client(RayPrefixAffinity(site), site)
    first = client.send("abcd").worker
    second = client.send("xy").worker
    third = client.send("z").worker
    assert {first, second, third} == {"w0", "w1", "w2"}
    assert client.send("uvw").worker == third
    assert client.send("q").worker == second


def test_of_those_that_were_sent_equally_little_the_shortest_queue_decides() -> None:
    site = FakeSite(3)
    policy = RayPrefixAffinity(site)
    client = Client(policy, site)
    policy.in_flight.update(w0=5, w1=2, w2=3)
    assert client.send("a").worker == "w1"


def test_by_default_no_load_is_imbalanced() -> None:
    site = FakeSite(2)
    client = Client(RayPrefixAffinity(site), site)
    assert len({client.send("abc").worker for _ in range(300)}) == 1


def test_imbalanced_load_is_left_to_two_choices() -> None:
    site = FakeSite(2)
    client = Client(RayPrefixAffinity(site, imbalanced_threshold=10), site)
    workers = [client.send("abc").worker for _ in range(30)]
    assert workers[:11] == [workers[0]] * 11
    assert workers[11] != workers[0]


def test_a_single_worker_takes_all() -> None:
    site = FakeSite(1)
    client = Client(RayPrefixAffinity(site, imbalanced_threshold=-1), site)
    assert client.send("abc").worker == "w0"
