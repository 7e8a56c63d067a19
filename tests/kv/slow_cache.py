"""A prefix cache as one would define it: a dictionary of prefixes, and a rescan for everything."""

from collections.abc import Iterable
from dataclasses import dataclass, field

Prefix = tuple[int, tuple[int, ...]]


@dataclass
class Sequence:
    seed: int
    ids: list[int]
    shared: int
    private: int


@dataclass
class Held:
    """A pin, or the protection of a sequence that waits."""

    prefixes: set[Prefix]
    until: float = 0.0


@dataclass
class SlowCache:
    """Each cached prefix of whole blocks is a key of `left`: the tick when it was last in use.

    Of `hits` as well: the numbers of the requests that found it.

    Each seed is a tenant; what is guaranteed and the maxima are in blocks, of all blocks and of the
    `pin_limit` that pins may hold. `policy` is "lru" or "cost".
    """

    num_blocks: int
    block_size: int
    guaranteed: dict[int, int]
    maximum: dict[int, int]
    pin_guaranteed: dict[int, int]
    pin_maximum: dict[int, int]
    pin_limit: int
    waiting_limit: int
    policy: str
    left: dict[Prefix, int] = field(default_factory=dict)
    hits: dict[Prefix, list[int]] = field(default_factory=dict)
    running: list[Sequence] = field(default_factory=list)
    pins: dict[Prefix, Held] = field(default_factory=dict)
    waiting: dict[int, Held] = field(default_factory=dict)
    found: dict[int, int] = field(default_factory=dict)
    evicted: int = 0
    tick: int = 0
    requests: int = 0

    def prefix(self, seed: int, ids: list[int], blocks: int) -> Prefix:
        return seed, tuple(ids[: blocks * self.block_size])

    def prefixes(self, seed: int, ids: list[int], blocks: int) -> set[Prefix]:
        return {self.prefix(seed, ids, count) for count in range(1, blocks + 1)}

    def matched(self, seed: int, ids: list[int]) -> int:
        """Blocks of the longest cached prefix."""
        blocks = 0
        while (blocks + 1) * self.block_size <= len(ids) and self.prefix(
            seed, ids, blocks + 1
        ) in self.left:
            blocks += 1
        return blocks

    def diverges(self, seed: int, ids: list[int]) -> int:
        """Tokens in common with the cached prefix that has the most of them."""

        def common(cached: tuple[int, ...]) -> int:
            differs = (at for at, (one, two) in enumerate(zip(cached, ids)) if one != two)  # noqa: B905
            return next(differs, min(len(cached), len(ids)))

        return max((common(cached) for other, cached in self.left if other == seed), default=0)

    def free(self) -> int:
        return self.num_blocks - len(self.left) - sum(s.private for s in self.running)

    def used(self, seed: int) -> int:
        cached = sum(other == seed for other, _ in self.left)
        return cached + sum(s.private for s in self.running if s.seed == seed)

    def run_over(self) -> set[Prefix]:
        """What running sequences hold."""
        return _union(self.prefixes(s.seed, s.ids, s.shared) for s in self.running)

    def pinned(self) -> set[Prefix]:
        return _union(pin.prefixes for pin in self.pins.values())

    def protected(self) -> set[Prefix]:
        return _union(held.prefixes for held in self.waiting.values())

    def unlocked(self) -> set[Prefix]:
        return set(self.left) - self.run_over() - self.pinned() - self.protected()

    def spare(self, seed: int, asker: int) -> int:
        """Blocks of the tenant `seed` that may go for `asker`."""
        mine = sum(other == seed for other, _ in self.unlocked())
        if seed == asker:
            return mine
        return min(mine, max(0, self.used(seed) - self.guaranteed[seed]))

    def capacity(self, seed: int) -> int:
        others = sum(blocks for other, blocks in self.guaranteed.items() if other != seed)
        return min(self.maximum[seed], self.num_blocks - others)

    def open(self, seed: int, ids: list[int], length: int, *, hit: bool) -> Sequence | None:
        sequence = Sequence(seed, ids, self.matched(seed, ids), 0)
        alone = not self.running
        self.running.append(sequence)
        wanted = self.wanted(sequence, length)
        while not self.fits(seed, wanted, strict=True):
            if not (alone and self.give_up_one()):
                assert not alone, "what fits alone must fit when alone"
                self.running.pop()
                return None
        self.stop_waiting(ids)
        self.requests += hit
        for prefix in self.prefixes(seed, ids, sequence.shared) if hit else ():
            self.hits[prefix].append(self.requests)
        self.take(seed, wanted)
        sequence.private += wanted
        return sequence

    def grow(self, sequence: Sequence, length: int) -> bool:
        while not self.grow_all([(sequence, length)]):
            alone = len(self.running) == 1
            if self.waiting:
                self.waiting.popitem()
            elif not (alone and self.give_up_one()):
                return False
        return True

    def grow_all(self, lengths: list[tuple[Sequence, int]]) -> bool:
        wanted = [self.wanted(sequence, length) for sequence, length in lengths]
        if not sum(wanted):
            return True
        seed = lengths[0][0].seed
        if not self.fits(seed, sum(wanted), strict=False):
            return False
        self.take(seed, sum(wanted))
        for (sequence, _), blocks in zip(lengths, wanted, strict=True):
            sequence.private += blocks
        return True

    def wanted(self, sequence: Sequence, length: int) -> int:
        return max(0, -(-length // self.block_size) - sequence.shared - sequence.private)

    def fits(self, seed: int, wanted: int, *, strict: bool) -> bool:
        excess = self.used(seed) + wanted - self.maximum[seed]
        if strict and excess > self.spare(seed, seed):
            return False
        return wanted <= self.free() + sum(self.spare(other, seed) for other in self.guaranteed)

    def take(self, seed: int, wanted: int) -> None:
        excess = self.used(seed) + wanted - self.maximum[seed]
        for _ in range(min(excess, self.spare(seed, seed))):
            self.evict_one([seed])
        guaranteed = self.used(seed) + wanted <= self.guaranteed[seed]
        while self.free() < wanted:
            spare = [other for other in self.guaranteed if self.spare(other, seed)]
            others = [other for other in spare if other != seed]
            self.evict_one(others if guaranteed and others else spare)

    def give_up_one(self) -> bool:
        if self.waiting:
            self.waiting.popitem()
        elif self.pins:
            del self.pins[min(self.pins, key=lambda key: self.pins[key].until)]
        else:
            return False
        return True

    def evict_one(self, seeds: list[int]) -> None:
        """The block left longest ago, of those on which no other cached block depends."""
        leaves = [
            (seed, ids)
            for seed, ids in self.unlocked()
            if seed in seeds
            and not any(
                seed == other and len(longer) > len(ids) and longer[: len(ids)] == ids
                for other, longer in self.left
            )
        ]
        self.drop(min(leaves, key=lambda leaf: (self.worth(leaf), self.left[leaf])))
        self.evicted += 1

    def worth(self, leaf: Prefix) -> float:
        if self.policy == "lru":
            return self.left[leaf]
        length = 4
        while length <= len(leaf[1]):
            length *= 2
        likelihood = (2 if self.hits[leaf] else 1) / (self.tick - self.left[leaf] + 1)
        return (1 + length / 16) ** 0.25 * likelihood

    def heat(self, prefix: Prefix) -> float:
        return sum(0.5 ** ((self.requests - number) / 512) for number in self.hits[prefix])

    def drop(self, prefix: Prefix) -> None:
        del self.left[prefix], self.hits[prefix]

    def commit(self, sequence: Sequence, stored: int) -> None:
        full = stored // self.block_size
        for blocks in range(sequence.shared + 1, full + 1):
            self.left.setdefault(self.prefix(sequence.seed, sequence.ids, blocks), 0)
            self.hits.setdefault(self.prefix(sequence.seed, sequence.ids, blocks), [])
        sequence.private -= full - sequence.shared
        sequence.shared = full

    def close(self, sequence: Sequence) -> None:
        self.tick += 1
        for prefix in self.prefixes(sequence.seed, sequence.ids, sequence.shared):
            self.left[prefix] = self.tick
        # NOTE: by identity, since two sequences may be equal.
        self.running = [other for other in self.running if other is not sequence]

    def look_up(self, seed: int, ids: list[int]) -> int:
        """Blocks that are cached; protected if they are more than the last time."""
        matched, before = self.matched(seed, ids), self.found.get(id(ids), 0)
        self.found[id(ids)] = matched
        held = self.prefixes(seed, ids, matched)
        if matched > before and len(self.protected() | held) <= self.waiting_limit:
            self.waiting[id(ids)] = Held(held)
        return matched

    def stop_waiting(self, ids: list[int]) -> None:
        self.found.pop(id(ids), None)
        self.waiting.pop(id(ids), None)

    def pin(self, seed: int, ids: list[int], until: float) -> int | None:
        """Tokens that are pinned; None when there are too many."""
        blocks, matched = len(ids) // self.block_size, self.matched(seed, ids)
        held = self.prefixes(seed, ids, matched)
        pins = {
            other: sum(other == whose for whose, _ in self.pinned() | held)
            for other in self.pin_guaranteed
        }
        pins[seed] += blocks - matched
        kept = sum(max(pins[other], self.pin_guaranteed[other]) for other in pins if other != seed)
        if pins[seed] > self.pin_maximum[seed] or pins[seed] + kept > self.pin_limit:
            return None
        self.pins[self.prefix(seed, ids, blocks)] = Held(held, until)
        return matched * self.block_size

    def unpin(self, seed: int, ids: list[int]) -> bool:
        key = self.prefix(seed, ids, len(ids) // self.block_size)
        return self.pins.pop(key, None) is not None

    def expire(self, now: float) -> None:
        self.pins = {key: pin for key, pin in self.pins.items() if pin.until > now}

    def clear(self) -> None:
        for prefix in self.unlocked():
            self.drop(prefix)


def _union(sets: Iterable[set[Prefix]]) -> set[Prefix]:
    return set().union(*sets)
