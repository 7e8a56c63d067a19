"""What the paper on Preble promises of E2."""

from radixgate.v1.sync_pb2 import Load

from sim.policy.preble import HIGH_LOAD_RATIO, REBALANCED_FROM, WINDOW_SECONDS, Preble
from tests.sim.policy.site import Client, FakeSite, change, prompt_of


def started(workers: int, rate: float = 4.0) -> tuple[Preble, Client]:
    site = FakeSite(workers)
    policy = Preble(site)
    for place in site.places:
        policy.loaded(place.id, Load(prefill_tokens_per_second=rate))
    return policy, Client(policy, site)


def test_more_cached_than_not_is_exploited() -> None:
    _, client = started(3)
    home = client.send("abc").worker
    for rest in ("", "d", "ef"):
        assert client.send("abc" + rest).worker == home


def test_no_more_cached_than_not_is_explored() -> None:
    _, client = started(2)
    home = client.send("ab").worker
    other = client.send("x").worker
    assert [client.send("ab" + rest).worker for rest in "klmn"] == [home] * 4
    # NOTE: 6 strides and 2 to prefill are more than 1 and 4.
    assert client.send("abcd").worker == other != home


def test_exploring_counts_what_would_be_prefilled() -> None:
    _, client = started(2)
    home = client.send("x").worker
    other = client.send("abcd").worker
    assert client.send("y").worker == home != other
    # NOTE: 2 strides and 9 to prefill are more than 4 and 5; 2 and 3 are less than 9 and 3.
    assert client.send("abcdefghi").worker == other
    assert client.send("uvw").worker == home


def test_of_those_that_hold_equally_much_the_one_with_less_load_exploits() -> None:
    _, client = started(2)
    home = client.send("ab").worker
    other = client.send("x").worker
    for rest in ("k", "l", "m", "n", "cd"):
        client.send("ab" + rest)
    assert client.worker(6) == other
    assert client.send("ab").worker == other  # NOTE: with 5 strides to 6
    assert client.send("uvw").worker == other
    assert client.send("ab").worker == home


def test_load_older_than_the_window_counts_no_more() -> None:
    _, client = started(2)
    home = client.send("abcdef").worker
    client.site.now = 1.0
    other = client.send("u").worker
    assert other != home
    client.site.now = WINDOW_SECONDS
    assert client.send("vw").worker == other
    client.site.now = WINDOW_SECONDS + 1
    assert client.send("xyz").worker == home


def test_load_counts_how_long_answers_take() -> None:
    _, client = started(2, rate=1000.0)
    home = client.send("abcdefgh").worker
    client.end(0, decode_seconds=100.0)
    other = client.send("x").worker
    assert client.send("y").worker == other != home
    assert client.send("z").worker == home  # NOTE: for one answer to two


def test_load_counts_tokens_at_the_mean_of_the_rates_that_are_reported() -> None:
    policy, client = started(2)
    policy.loaded("w0", Load(prefill_tokens_per_second=2.0))
    policy.loaded("w1", Load(prefill_tokens_per_second=6.0))
    policy.loaded("w1", Load())
    home = client.send("abcdefgh").worker
    client.end(0, decode_seconds=1.0)
    # NOTE: with a stride a second, 8 + 1 seconds there to 1 + 1 for each of the others.
    workers = [client.send(text).worker for text in "uvwxyz"]
    assert home not in workers[:5]
    assert workers[5] == home


def test_what_a_worker_evicted_is_not_exploited() -> None:
    policy, client = started(2)
    home = client.send("abcd").worker
    policy.changed(home, change(evicted=prompt_of("abcd").boundaries[1:]))
    assert client.send("abcd").worker != home


def test_work_is_handed_over_at_much_more_load_than_the_least() -> None:
    _, client = started(2)
    home = client.send("a" * HIGH_LOAD_RATIO).worker
    other = client.send("x").worker
    for _ in range(REBALANCED_FROM):
        assert client.send("a" * HIGH_LOAD_RATIO).worker == home
    assert client.send("a" * HIGH_LOAD_RATIO + "b").worker == home
    assert client.send("a" * HIGH_LOAD_RATIO).worker == other


def test_the_first_requests_are_not_handed_over() -> None:
    _, client = started(2)
    workers = [client.send("abc").worker for _ in range(REBALANCED_FROM + 1)]
    assert workers[:-1] == [workers[0]] * REBALANCED_FROM
    assert workers[-1] != workers[0]
