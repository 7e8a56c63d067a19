"""Dynamo's cost against one that is counted anew from all that runs."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.policy.dynamo import Dynamo
from tests.sim.policy.site import STRIDE, Client, FakeSite, change, prompt_of


class Send(NamedTuple):
    text: str
    extra: int


class FirstToken(NamedTuple):
    """Of the one that has run this much shorter than the oldest, or of the newest."""

    of: int


class End(NamedTuple):
    """Of that one."""

    of: int


class Store(NamedTuple):
    text: str
    worker: int


TEXTS = st.text("ab", min_size=1, max_size=4)
EVENTS = st.lists(
    st.one_of(
        st.builds(Send, TEXTS, st.integers(0, STRIDE - 1)),
        st.builds(FirstToken, st.integers(0, 5)),
        st.builds(End, st.integers(0, 5)),
        st.builds(Store, TEXTS, st.integers(0, 2)),
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

    def numbered(self, of: int) -> int:
        return list(self.running)[: of + 1][-1]

    def cached(self, worker: str, text: str) -> int:
        return len(prefixes_of(text) & self.held[worker]) * STRIDE


@settings(max_examples=200)
@given(events=EVENTS)
def test_the_lowest_cost_wins(events: list[Send | FirstToken | End | Store]) -> None:
    site = FakeSite(3)
    policy = Dynamo(site)
    client = Client(policy, site)
    model = Model([place.id for place in site.places])
    for event in events:
        match event:
            case Send(text, extra):
                costs = {worker: model.cost(worker, text, extra) for worker in model.held}
                worker, expected = client.send(text, extra)
                assert costs[worker] == min(costs.values())
                assert expected == model.cached(worker, text)
                new = len(text) * STRIDE + extra - expected
                model.running[len(client.jobs) - 1] = (worker, text, extra, new)
            case Store(text, index):
                missing = sorted(prefixes_of(text) - model.held[f"w{index}"], key=len)
                model.held[f"w{index}"].update(missing)
                hashes = [prompt_of(prefix).boundaries[-1] for prefix in missing]
                policy.changed(f"w{index}", change(stored=hashes))
            case FirstToken(of) if model.running:
                number = model.numbered(of)
                client.first_token(number)
                model.running[number] = (*model.running[number][:3], 0)
            case End(of) if model.running:
                number = model.numbered(of)
                policy.ended(client.jobs[number], client.worker(number))
                del model.running[number]


def test_a_hot_prefix_spills_once_its_worker_costs_more() -> None:
    site = FakeSite(2)
    policy = Dynamo(site)
    client = Client(policy, site)
    policy.changed("w0", change(stored=prompt_of("abcd").boundaries))
    assert client.send("abcd" + "e").worker == "w0"
    workers = [client.send("abcd" + rest).worker for rest in "fghijklmno"]
    assert set(workers) == {"w0", "w1"}
