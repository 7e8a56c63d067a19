"""Dynamo's cost against one that is counted anew from all that runs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.policy.dynamo import Dynamo
from tests.sim.policy.site import STRIDE, Client, FakeSite, change, prompt_of

TEXTS = st.text("ab", max_size=4)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), TEXTS, st.integers(0, STRIDE - 1)),
        st.tuples(st.just("first token"), st.integers(0, 30), st.none()),
        st.tuples(st.just("end"), st.integers(0, 30), st.none()),
        st.tuples(st.just("store"), TEXTS, st.integers(0, 2)),
    ),
    max_size=40,
)


def prefixes_of(text: str) -> set[str]:
    return {text[:length] for length in range(1, len(text) + 1)}


class Model:
    """All that runs, and what it costs to add one more, in blocks of 2 tokens."""

    def __init__(self, workers: list[str]) -> None:
        self.held: dict[str, set[str]] = {worker: set() for worker in workers}
        self.running: dict[int, tuple[str, str, int, int]] = {}

    def cost(self, worker: str, text: str, extra: int) -> float:
        here = [each for each in self.running.values() if each[0] == worker]
        new = len(text) * STRIDE + extra - self.cached(worker, text)
        prefill = sum(tokens for *_, tokens in here) + new
        used = set().union(*(prefixes_of(each) for _, each, _, _ in here), prefixes_of(text))
        decode = len(used) * STRIDE + sum(tail for *_, tail, _ in here) + extra
        return (prefill + decode) / 2

    def cached(self, worker: str, text: str) -> int:
        return len(prefixes_of(text) & self.held[worker]) * STRIDE


@settings(max_examples=200)
@given(events=EVENTS)
def test_the_lowest_cost_wins(events: list[tuple[str, str | int, int | None]]) -> None:
    site = FakeSite(3)
    policy = Dynamo(site)
    client = Client(policy, site)
    model = Model([place.id for place in site.places])
    for what, subject, number in events:
        if what == "send" and isinstance(subject, str):
            extra = number or (0 if subject else 1)
            choice = client.send(subject, extra)
            costs = {worker: model.cost(worker, subject, extra) for worker in model.held}
            assert costs[choice.worker] == min(costs.values())
            assert choice.expected_tokens == model.cached(choice.worker, subject)
            new = len(subject) * STRIDE + extra - choice.expected_tokens
            model.running[len(client.jobs) - 1] = (choice.worker, subject, extra, new)
        elif what == "first token" and subject in model.running:
            worker, text, extra, _ = model.running[subject]
            client.first_token(subject)
            model.running[subject] = (worker, text, extra, 0)
        elif what == "end" and subject in model.running:
            policy.ended(client.jobs[subject], client.worker(subject))
            del model.running[subject]
        elif what == "store" and isinstance(subject, str):
            worker = f"w{number}"
            missing = sorted(prefixes_of(subject) - model.held[worker], key=len)
            model.held[worker] |= prefixes_of(subject)
            hashes = [prompt_of(prefix).boundaries[-1] for prefix in missing]
            policy.changed(worker, change(stored=hashes))


def test_a_hot_prefix_spills_once_its_worker_costs_more() -> None:
    site = FakeSite(2)
    policy = Dynamo(site)
    client = Client(policy, site)
    policy.changed("w0", change(stored=prompt_of("abcd").boundaries))
    assert client.send("abcd" + "e").worker == "w0"
    workers = [client.send("abcd" + rest).worker for rest in "fghijklmno"]
    assert set(workers) == {"w0", "w1"}
