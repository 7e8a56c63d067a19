"""The policies that every router has."""

from collections import Counter

from sim.policy.least_loaded import LeastLoaded
from sim.policy.prefix_only import PrefixOnly
from sim.policy.round_robin import RoundRobin
from sim.policy.session import SessionAffinity
from sim.policy.uniform import Uniform
from tests.sim.policy.site import STRIDE, Client, FakeSite, change, prompt_of


def test_round_robin_takes_one_after_the_other() -> None:
    site = FakeSite(3)
    client = Client(RoundRobin(site), site)
    assert [client.send("a").worker for _ in range(7)] == ["w0", "w1", "w2"] * 2 + ["w0"]


def test_random_takes_all() -> None:
    site = FakeSite(4)
    client = Client(Uniform(site), site)
    counts = Counter(client.send("a").worker for _ in range(400))
    assert len(counts) == 4
    assert min(counts.values()) > 60


def test_least_loaded_takes_whoever_has_the_fewest() -> None:
    site = FakeSite(3)
    client = Client(LeastLoaded(site), site)
    assert {client.send("a").worker for _ in range(3)} == {"w0", "w1", "w2"}
    client.end(1)
    assert client.send("a").worker == client.worker(1)


def test_least_loaded_draws_among_equals() -> None:
    first = set()
    for seed in range(30):
        site = FakeSite(3, seed)
        first.add(Client(LeastLoaded(site), site).send("a").worker)
    assert first == {"w0", "w1", "w2"}


def test_prefix_only_takes_who_holds_the_most() -> None:
    site = FakeSite(3)
    policy = PrefixOnly(site)
    client = Client(policy, site)
    boundaries = prompt_of("abcd").boundaries
    policy.changed("w1", change(stored=boundaries[:2]))
    policy.changed("w2", change(stored=boundaries[:3]))
    for _ in range(20):  # NOTE: whatever is in flight there
        assert client.send("abcd") == ("w2", 3 * STRIDE)
    policy.changed("w2", change(evicted=boundaries[1:3]))
    assert client.send("abcd") == ("w1", 2 * STRIDE)


def test_prefix_only_takes_the_least_loaded_of_those_that_hold_equally_much() -> None:
    site = FakeSite(3)
    policy = PrefixOnly(site)
    client = Client(policy, site)
    for worker in ("w0", "w2"):
        policy.changed(worker, change(stored=prompt_of("a").boundaries))
    assert sorted(client.send("ab").worker for _ in range(4)) == ["w0", "w0", "w2", "w2"]
    assert client.send("xy") == ("w1", 0)


def test_a_session_stays_where_it_is() -> None:
    site = FakeSite(5)
    client = Client(SessionAffinity(site), site)
    homes = {
        name: {client.send(text, session=name).worker for text in ("abc", "xyz", "q")}
        for name in (f"session-{number}" for number in range(40))
    }
    assert all(len(workers) == 1 for workers in homes.values())
    assert len(set.union(*homes.values())) == 5


def test_without_a_session_the_first_stride_decides() -> None:
    site = FakeSite(5)
    client = Client(SessionAffinity(site), site)
    workers = {first: {client.send(first + rest).worker for rest in "wxyz"} for first in "abcdefgh"}
    assert all(len(each) == 1 for each in workers.values())
    assert len(set.union(*workers.values())) > 1
    assert client.send("", extra=STRIDE - 1).worker == client.send("", extra=STRIDE - 1).worker
