"""What was sent where, against lists that are searched from end to end."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from radixgate.prefix import PrefixHash

from sim.policy.history import PromptHistory

# Prompts are paths in a small tree: strings over two letters, whose prefixes are the boundaries.
PROMPTS = st.text("xy", max_size=6)
WORKERS = ["a", "b", "c"]


def prefixes_of(prompt: str) -> list[str]:
    return [prompt[:length] for length in range(1, len(prompt) + 1)]


def hashes_of(prefixes: list[str]) -> list[PrefixHash]:
    return [PrefixHash(hash(prefix)) for prefix in prefixes]


class HistoryMachine(RuleBasedStateMachine):
    """Prompts are sent, forgotten and removed in any order; matches stay right."""

    @initialize()
    def start(self) -> None:
        self.history = PromptHistory(WORKERS)
        self.sent: dict[str, list[str]] = {worker: [] for worker in WORKERS}

    @rule(worker=st.sampled_from(WORKERS), prompt=PROMPTS)
    def send(self, worker: str, prompt: str) -> None:
        prefixes = prefixes_of(prompt)
        self.history.sent(worker, hashes_of(prefixes))
        others = [prefix for prefix in self.sent[worker] if prefix not in prefixes]
        self.sent[worker] = others + prefixes[::-1]

    @rule(worker=st.sampled_from(WORKERS), limit=st.integers(0, 12))
    def forget(self, worker: str, limit: int) -> None:
        self.history.forget(worker, limit)
        self.sent[worker] = self.sent[worker][max(0, len(self.sent[worker]) - limit) :]

    @rule(worker=st.sampled_from(WORKERS), prompt=PROMPTS)
    def remove_all_beyond(self, worker: str, prompt: str) -> None:
        gone = [prefix for prefix in self.sent[worker] if prefix.startswith(prompt)]
        self.history.removed(worker, hashes_of([*gone, "never sent"]))
        self.sent[worker] = [prefix for prefix in self.sent[worker] if prefix not in gone]

    @rule(prompt=PROMPTS)
    def match(self, prompt: str) -> None:
        lengths = {
            worker: sum(prefix in sent for prefix in prefixes_of(prompt))
            for worker, sent in self.sent.items()
        }
        boundaries = hashes_of(prefixes_of(prompt))
        assert self.history.matches(boundaries) == {
            worker: length for worker, length in lengths.items() if length
        }
        longest = max(lengths.values())
        matched, holders = self.history.match(boundaries)
        assert matched == longest
        assert sorted(holders) == [
            worker for worker in WORKERS if longest and lengths[worker] == longest
        ]

    @invariant()
    def consistent(self) -> None:
        self.history.check_integrity()
        for worker, sent in self.sent.items():
            assert self.history.size(worker) == len(sent)


TestHistory = HistoryMachine.TestCase


@given(prompt=st.text("xy", min_size=2, max_size=6))
def test_what_lies_beyond_a_removed_boundary_does_not_match(prompt: str) -> None:
    boundaries = hashes_of(prefixes_of(prompt))
    history = PromptHistory(WORKERS)
    history.sent("a", boundaries)
    history.removed("a", boundaries[:1])
    assert history.matches(boundaries) == {}


def test_nor_does_it_where_another_worker_has_the_boundary() -> None:
    boundaries = hashes_of(prefixes_of("xyx"))
    history = PromptHistory(WORKERS)
    history.sent("a", boundaries)
    history.sent("b", boundaries)
    history.removed("a", boundaries[1:2])
    assert history.matches(boundaries) == {"a": 1, "b": 3}
