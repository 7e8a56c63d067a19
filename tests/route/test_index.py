"""The index against a dictionary of sets."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from radixgate.prefix import PrefixHash

from gateway.route.index import PrefixIndex

# Prompts are paths in a small tree: strings over two letters, whose prefixes are the boundaries.
PROMPTS = st.text("xy", max_size=12)
WORKERS = st.sampled_from("abcd")


def hashes_of(prefixes: list[str]) -> list[PrefixHash]:
    return [PrefixHash(hash(prefix)) for prefix in prefixes]


def prefixes_of(prompt: str) -> list[str]:
    return [prompt[:length] for length in range(1, len(prompt) + 1)]


class IndexMachine(RuleBasedStateMachine):
    """Workers store prompts, evict from their tails, and leave; matches stay right."""

    def __init__(self) -> None:
        super().__init__()
        self.index = PrefixIndex()
        self.held: dict[str, set[str]] = {}

    @rule(worker=WORKERS, prompt=PROMPTS)
    def store(self, worker: str, prompt: str) -> None:
        held = self.held.setdefault(worker, set())
        new = [prefix for prefix in prefixes_of(prompt) if prefix not in held]
        held.update(new)
        self.index.stored(worker, hashes_of(new))

    @rule(worker=WORKERS, prompt=PROMPTS)
    def evict(self, worker: str, prompt: str) -> None:
        held = self.held.get(worker, set())
        gone = [prefix for prefix in held if prompt and prefix.startswith(prompt)]
        held.difference_update(gone)
        self.index.removed(worker, hashes_of(gone))

    @rule(worker=WORKERS)
    def leave(self, worker: str) -> None:
        self.held.pop(worker, None)
        self.index.forgotten(worker)

    @rule(prompt=PROMPTS)
    def match(self, prompt: str) -> None:
        expected = {
            worker: sum(prefix in held for prefix in prefixes_of(prompt))
            for worker, held in self.held.items()
        }
        assert self.index.match(hashes_of(prefixes_of(prompt))) == {
            worker: count for worker, count in expected.items() if count
        }

    @invariant()
    def counts_every_boundary_once(self) -> None:
        assert len(self.index) == len(set().union(*self.held.values()))


TestIndex = IndexMachine.TestCase


@given(st.integers(1, 2000), st.lists(st.integers(0, 2000), max_size=5))
def test_probes_are_few(length: int, matches: list[int]) -> None:
    index = PrefixIndex()
    boundaries = [PrefixHash(name) for name in range(length)]
    for worker, match in enumerate(matches):
        index.stored(str(worker), boundaries[:match])

    class Counted(list[PrefixHash]):
        probes = 0

        def __getitem__(self, at):  # type: ignore[no-untyped-def]
            self.probes += 1
            return super().__getitem__(at)

    counted = Counted(boundaries)
    index.match(counted)
    different = len({min(match, length) for match in matches})
    assert counted.probes <= (different + 1) * (2 * length.bit_length() + 2)


def test_a_worker_that_returns_owes_nothing_to_its_earlier_life() -> None:
    index = PrefixIndex()
    boundaries = [PrefixHash(1), PrefixHash(2)]
    index.stored("a", boundaries)
    index.stored("b", boundaries[:1])
    index.forgotten("a")
    index.stored("c", [])
    index.stored("a", [])
    assert index.match(boundaries) == {"b": 1}
