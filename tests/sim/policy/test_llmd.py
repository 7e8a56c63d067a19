"""What the scorers of llm-d promise."""

from radixgate.v1.sync_pb2 import Load

from sim.policy.base import Place
from sim.policy.llmd import LlmdScorers
from tests.sim.policy.site import STRIDE, Client, FakeSite


def load(waiting: int, unused: float = 1.0) -> Load:
    free = int(1000 * unused / 2)
    return Load(waiting=waiting, free_blocks=free, cached_blocks=free, total_blocks=1000)


def started(workers: int) -> tuple[LlmdScorers, Client]:
    site = FakeSite(workers)
    policy = LlmdScorers(site)
    for place in site.places:
        policy.loaded(place.id, load(0))
    return policy, Client(policy, site)


def test_a_prefix_is_worth_more_than_a_queue() -> None:
    policy, client = started(2)
    home = client.send("abc").worker
    policy.loaded(home, load(waiting=5))
    assert [client.send("abc") for _ in range(9)] == [(home, 3 * STRIDE)] * 9


def test_less_than_two_thirds_of_a_prefix_is_worth_less_than_the_longest_queue() -> None:
    policy, client = started(2)
    home = client.send("ab").worker
    policy.loaded(home, load(waiting=1))
    assert client.send("abcdef").worker != home


def test_a_full_memory_counts_as_much_as_a_queue() -> None:
    policy, client = started(2)
    policy.loaded("w0", load(waiting=0, unused=0.5))
    policy.loaded("w1", load(waiting=0, unused=1.0))
    assert {client.send(text).worker for text in "abcdefgh"} == {"w1"}
    policy.loaded("w1", load(waiting=3, unused=1.0))
    assert {client.send(text).worker for text in "ijklmnop"} == {"w0"}


def test_equal_scores_are_drawn() -> None:
    _, client = started(3)
    assert {client.send(text).worker for text in "abcdefghijklmnop"} == {"w0", "w1", "w2"}


def test_its_index_holds_what_the_worker_has_room_for_and_forgets_the_oldest() -> None:
    site = FakeSite(1)
    site.places = [Place("w0", num_blocks=4 * STRIDE // 2, block_size=2, max_running=8)]
    client = Client(LlmdScorers(site), site)
    client.send("abcd")
    assert client.send("abcd").expected_tokens == 4 * STRIDE
    client.send("x")
    assert client.send("abcd").expected_tokens == 3 * STRIDE


def test_a_prompt_shorter_than_a_stride_is_sent() -> None:
    _, client = started(2)
    assert client.send("", extra=1).expected_tokens == 0
