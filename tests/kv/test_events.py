"""The boundary ledger: a reader that applies its reports holds what the ledger holds."""

from collections import Counter
from contextlib import nullcontext

from hypothesis import given
from hypothesis import strategies as st
from radixgate.digest import SetDigest
from radixgate.prefix import PrefixHash

from worker.kv.events import KvEvents, Reason

A, B = PrefixHash(1), PrefixHash(2)
names = st.integers(0, 5).map(PrefixHash)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("stored"), st.lists(names, max_size=4)),
        st.tuples(st.just("removed"), st.lists(names, max_size=4)),
        st.tuples(st.sampled_from(["take", "snapshot"]), st.just([])),
    ),
    max_size=30,
)


@given(steps)
def test_a_reader_ends_with_the_held_set(steps: list[tuple[str, list[PrefixHash]]]) -> None:
    events = KvEvents(nullcontext())
    held, reader, seq = Counter[PrefixHash](), set[PrefixHash](), 0
    for what, hashes in steps:
        if what == "stored":
            events.stored(hashes)
            held.update(hashes)
        elif what == "removed":
            present = list((Counter(hashes) & held).elements())
            events.removed(present, Reason.CAPACITY)
            held -= Counter(present)
        elif what == "snapshot":
            snapshot = events.snapshot()
            assert snapshot.seq - seq == (set(held) != reader)
            reader, seq = set(snapshot.hashes), snapshot.seq
            assert len(snapshot.hashes) == len(reader)
            assert snapshot.digest == SetDigest.of(reader)
            assert events.take() is None
        elif change := events.take():
            removed = [name for names in change.removed.values() for name in names]
            assert change.seq == seq + 1
            assert reader.isdisjoint(change.stored)
            assert reader.issuperset(removed)
            assert change.stored or removed
            reader, seq = (reader | set(change.stored)) - set(removed), change.seq
            assert change.digest == SetDigest.of(reader)
        else:
            assert reader == set(held), "a change was not reported"
        now = events.held()
        assert (now.seq, set(now.hashes)) == (seq, set(held))
        assert now.digest == SetDigest.of(held)
        if what in ("take", "snapshot"):
            assert reader == set(held)
            assert events.reported == (seq, SetDigest.of(reader))


def test_removals_keep_their_reason() -> None:
    events = KvEvents(nullcontext())
    events.stored([A, B])
    events.take()
    events.removed([A], Reason.CAPACITY)
    events.removed([B], Reason.CLEARED)
    change = events.take()
    assert change
    assert change.removed == {Reason.CAPACITY: [A], Reason.CLEARED: [B]}


def test_the_reporter_is_woken_once_for_each_report() -> None:
    events, calls = KvEvents(nullcontext()), list[str]()
    events.on_pending = lambda: calls.append("woken")
    events.stored([])
    assert calls == []
    events.stored([A])
    events.stored([B])
    assert calls == ["woken"]
    events.take()
    events.removed([A], Reason.CAPACITY)
    assert calls == ["woken", "woken"]


def test_two_prefixes_with_one_hash_go_with_the_last() -> None:
    events = KvEvents(nullcontext())
    events.stored([A])
    events.stored([A])
    assert events.take()
    events.removed([A], Reason.CAPACITY)
    assert events.take() is None
    events.removed([A], Reason.CAPACITY)
    assert events.take()
