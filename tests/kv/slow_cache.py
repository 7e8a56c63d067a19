"""A prefix cache as one would define it: a dictionary of prefixes, and a rescan for everything."""

from dataclasses import dataclass, field

Prefix = tuple[int, tuple[int, ...]]


@dataclass
class Sequence:
    seed: int
    ids: list[int]
    shared: int
    private: int


@dataclass
class SlowCache:
    """Each cached prefix of whole blocks is a key of `left`: the tick when it was last in use."""

    num_blocks: int
    block_size: int
    left: dict[Prefix, int] = field(default_factory=dict)
    running: list[Sequence] = field(default_factory=list)
    evicted: int = 0
    tick: int = 0

    def prefix(self, seed: int, ids: list[int], blocks: int) -> Prefix:
        return seed, tuple(ids[: blocks * self.block_size])

    def matched(self, seed: int, ids: list[int]) -> int:
        """Blocks of the longest cached prefix."""
        blocks = 0
        while (blocks + 1) * self.block_size <= len(ids) and self.prefix(
            seed, ids, blocks + 1
        ) in self.left:
            blocks += 1
        return blocks

    def free(self) -> int:
        return self.num_blocks - len(self.left) - sum(s.private for s in self.running)

    def unlocked(self) -> set[Prefix]:
        locked = {
            self.prefix(s.seed, s.ids, blocks)
            for s in self.running
            for blocks in range(1, s.shared + 1)
        }
        return set(self.left) - locked

    def open(self, seed: int, ids: list[int], length: int) -> Sequence | None:
        matched = self.matched(seed, ids)
        sequence = Sequence(seed, ids, matched, 0)
        self.running.append(sequence)
        if self.grow(sequence, length):
            return sequence
        self.running.remove(sequence)
        return None

    def grow(self, sequence: Sequence, length: int) -> bool:
        total = max(-(-length // self.block_size), sequence.shared + sequence.private)
        wanted = total - sequence.shared - sequence.private
        if wanted > self.free() + len(self.unlocked()):
            return False
        while self.free() < wanted:
            self.evict_one()
        sequence.private += wanted
        return True

    def evict_one(self) -> None:
        """The block left longest ago, of those on which no other cached block depends."""
        leaves = [
            (seed, ids)
            for seed, ids in self.unlocked()
            if not any(
                seed == other and len(longer) > len(ids) and longer[: len(ids)] == ids
                for other, longer in self.left
            )
        ]
        del self.left[min(leaves, key=self.left.__getitem__)]
        self.evicted += 1

    def commit(self, sequence: Sequence, stored: int) -> None:
        full = stored // self.block_size
        for blocks in range(sequence.shared + 1, full + 1):
            self.left.setdefault(self.prefix(sequence.seed, sequence.ids, blocks), 0)
        sequence.private -= full - sequence.shared
        sequence.shared = full

    def close(self, sequence: Sequence) -> None:
        self.tick += 1
        for blocks in range(1, sequence.shared + 1):
            self.left[self.prefix(sequence.seed, sequence.ids, blocks)] = self.tick
        # NOTE: by identity, since two sequences may be equal.
        self.running = [other for other in self.running if other is not sequence]

    def clear(self) -> None:
        for prefix in self.unlocked():
            del self.left[prefix]
