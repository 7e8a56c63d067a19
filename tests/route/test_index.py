"""The index against a dictionary of sets."""

from collections.abc import Collection
from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from radixgate.prefix import PrefixHash

from gateway.route.index import WALK, PrefixIndex

# Prompts are paths in a small tree: strings over two letters, whose prefixes are the boundaries.
PROMPTS = st.text("xy", max_size=12)
WORKERS = st.sampled_from("abcd")


def hashes_of(prefixes: Collection[str]) -> list[PrefixHash]:
    return [PrefixHash(hash(prefix)) for prefix in prefixes]


def prefixes_of(prompt: str) -> list[str]:
    return [prompt[:length] for length in range(1, len(prompt) + 1)]


class IndexMachine(RuleBasedStateMachine):
    """Workers store prompts, evict from their tails, leave and return; matches stay right."""

    @initialize(clean_step=st.integers(0, 20))
    def start(self, clean_step: int) -> None:
        self.index = PrefixIndex(clean_step)
        self.clean_step = clean_step
        self.held: dict[str, set[str]] = {}
        self.left = 0

    def anyone_holds(self, prefix: str) -> bool:
        return any(prefix in held for held in self.held.values())

    @rule(worker=WORKERS, prompt=PROMPTS)
    def store(self, worker: str, prompt: str) -> None:
        held = self.held.setdefault(worker, set())
        new = [prefix for prefix in prefixes_of(prompt) if prefix not in held]
        held.update(new)
        self.index.stored(worker, hashes_of(new))

    @rule(worker=WORKERS, prompt=PROMPTS)
    def evict(self, worker: str, prompt: str) -> None:
        if worker in self.held:
            held = self.held[worker]
            evicted = [prefix for prefix in held if prompt and prefix.startswith(prompt)]
            held.difference_update(evicted)
            gone = self.index.removed(worker, hashes_of(evicted))
            assert gone == hashes_of([each for each in evicted if not self.anyone_holds(each)])

    @rule(worker=WORKERS)
    def leave(self, worker: str) -> None:
        held = self.held.pop(worker, set())
        self.left += len(held)
        self.index.forgotten(worker, dict.fromkeys(hashes_of(held)))

    @rule()
    def clean(self) -> None:
        self.index.clean()

    @rule()
    def clean_all(self) -> None:
        if self.clean_step:
            for _ in range(self.left // self.clean_step + 1):
                self.index.clean()
            self.left = 0
            assert len(self.index) == len(set().union(*self.held.values()))

    @rule(prompt=PROMPTS)
    def match(self, prompt: str) -> None:
        expected = {
            worker: sum(prefix in held for prefix in prefixes_of(prompt))
            for worker, held in self.held.items()
        }
        assert self.index.match(hashes_of(prefixes_of(prompt))) == {
            worker: count for worker, count in expected.items() if count
        }

    @rule(prompt=PROMPTS, lengths=st.dictionaries(WORKERS, st.integers(1, 3)))
    def match_beyond(self, prompt: str, lengths: dict[str, int]) -> None:
        """Of a worker that holds some the index has what follows, without a gap."""
        prefixes = prefixes_of(prompt)
        whole = len(prefixes)
        held = {worker: min(length, whole) for worker, length in lengths.items() if whole}
        expected = {}
        for worker in {*held, *self.held}:
            start = held.get(worker, 0)
            by_index = self.held.get(worker, set())
            further = takewhile(by_index.__contains__, prefixes[start:])
            expected[worker] = start + sum(1 for _ in further)
        assert self.index.match_beyond(hashes_of(prefixes), held) == {
            worker: count for worker, count in expected.items() if count
        }

    @invariant()
    def is_whole(self) -> None:
        self.index.check_integrity()
        assert len(self.index) >= len(set().union(*self.held.values()))


TestIndex = IndexMachine.TestCase


class Counted(list[PrefixHash]):
    """Counts the boundaries that are read one by one, and those read in slices."""

    probes = walked = 0

    def __getitem__(self, at):  # type: ignore[no-untyped-def]
        found = super().__getitem__(at)
        if isinstance(at, slice):
            self.walked += len(found)
        else:
            self.probes += 1
        return found


@given(st.integers(1, 2000), st.lists(st.integers(0, 2000), max_size=100))
def test_matches_are_exact_and_probes_are_few(length: int, lengths: list[int]) -> None:
    index = PrefixIndex()
    boundaries = [PrefixHash(name) for name in range(length)]
    for worker, held in enumerate(lengths):
        index.stored(str(worker), boundaries[:held])

    counted = Counted(boundaries)
    matches = {str(worker): min(held, length) for worker, held in enumerate(lengths) if held}
    assert index.match(counted) == matches
    different = len(set(matches.values()))
    assert counted.probes <= (different + 1) * (2 * length.bit_length() + 2)
    assert counted.walked <= WALK * len(lengths)


def test_a_long_prompt_held_by_many_alike_is_not_walked() -> None:
    index = PrefixIndex()
    boundaries = Counted(map(PrefixHash, range(2000)))
    for worker in range(64):
        index.stored(str(worker), list(boundaries)[: 1500 if worker else 1900])
    assert index.match(boundaries) == {str(n): 1500 if n else 1900 for n in range(64)}
    assert (boundaries.walked, boundaries.probes <= 44) == (0, True)


def test_a_worker_that_returns_owes_nothing_to_its_earlier_life() -> None:
    index = PrefixIndex(clean_step=0)
    boundaries = [PrefixHash(1), PrefixHash(2)]
    index.stored("a", boundaries)
    index.stored("b", boundaries[:1])
    index.forgotten("a", dict.fromkeys(boundaries))
    index.stored("c", [])
    index.stored("a", [])
    assert index.match(boundaries) == {"b": 1}


class Untouched(dict[PrefixHash, None]):
    """A dict that must not be read yet."""

    readable = False

    def __iter__(self):  # type: ignore[no-untyped-def]
        assert self.readable
        return super().__iter__()

    def __len__(self) -> int:
        assert self.readable
        return super().__len__()


def test_forgetting_reads_nothing_and_cleaning_goes_in_steps() -> None:
    index = PrefixIndex(clean_step=10)
    held = Untouched.fromkeys(map(PrefixHash, range(95)))
    index.stored("a", [PrefixHash(name) for name in range(95)])
    index.stored("b", [PrefixHash(0)])
    index.forgotten("a", held)
    assert index.match([PrefixHash(0), PrefixHash(1)]) == {"b": 1}
    held.readable = True
    sizes = []
    while held:
        index.clean()
        sizes.append(len(held))
    assert sizes == [85, 75, 65, 55, 45, 35, 25, 15, 5, 0]
    assert len(index) == 1


def test_memory_is_bounded_by_twice_what_is_held_through_any_number_of_restarts() -> None:
    index = PrefixIndex(clean_step=0)
    for life in range(20):
        names = [PrefixHash(1000 * life + n) for n in range(100)]
        for name in names:
            index.stored("a", [name])
            assert len(index) <= 200
        index.forgotten("a", dict.fromkeys(names))
    index.check_integrity()
