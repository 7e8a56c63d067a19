"""What was evicted lately, against the list of all evictions."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from radixgate.prefix import PrefixHash

from gateway.route.tombstones import Tombstones

GENERATION = 6
# As in the tests of the index: the prefixes of a string over two letters are its boundaries.
PROMPTS = st.text("xy", max_size=8)


def hashes_of(prompt: str) -> list[PrefixHash]:
    return [PrefixHash(hash(prompt[:end])) for end in range(1, len(prompt) + 1)]


class TombstonesMachine(RuleBasedStateMachine):
    """A cache that is prefix-closed stores and evicts; the newest evictions are all known."""

    @initialize()
    def start(self) -> None:
        self.tombstones = Tombstones(GENERATION)
        self.held: set[str] = set()
        self.history: list[str] = []
        self.evicted: set[str] = set()

    @rule(prompt=PROMPTS)
    def store(self, prompt: str) -> None:
        new = [prompt[:end] for end in range(1, len(prompt) + 1)]
        self.held.update(new)
        self.evicted.difference_update(new)
        self.tombstones.stored(hashes_of(prompt))

    @rule(data=st.data())
    def evict_a_leaf(self, data: st.DataObject) -> None:
        leaves = sorted(self.held - {prefix[:-1] for prefix in self.held})
        if leaves:
            leaf = data.draw(st.sampled_from(leaves))
            self.held.remove(leaf)
            self.history.append(leaf)
            self.evicted.add(leaf)
            self.tombstones.evicted([PrefixHash(hash(leaf))])

    @rule(prompt=PROMPTS)
    def run_is_what_follows_what_is_held(self, prompt: str) -> None:
        prefixes = [prompt[:end] for end in range(1, len(prompt) + 1)]
        start = sum(prefix in self.held for prefix in prefixes)
        run = self.tombstones.run(hashes_of(prompt), start)
        assert prefixes[start : start + run] == [e for e in prefixes if e in self.evicted][:run]
        recent = self.evicted.intersection(self.history[-GENERATION:])
        assert run >= sum(prefix in recent for prefix in prefixes)

    @invariant()
    def is_bounded(self) -> None:
        assert len(self.tombstones) <= 2 * GENERATION


TestTombstones = TombstonesMachine.TestCase


def test_what_lies_beyond_a_gap_is_not_part_of_the_run() -> None:
    tombstones = Tombstones(10)
    names = [PrefixHash(name) for name in range(8)]
    tombstones.evicted(names[1:4])
    tombstones.evicted(names[5:])
    assert [tombstones.run(names, start) for start in (0, 1, 3, 4, 5, 8)] == [0, 3, 1, 0, 3, 0]
