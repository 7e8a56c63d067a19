"""What is announced of a gateway's reservations, and what need not be."""

from radixgate.prefix import PrefixHash, unpack_hashes
from radixgate.v1.gateway_pb2 import FinishRequest

from gateway.summary.outbox import Outbox, Outboxes

BOUNDARIES = [PrefixHash(3), PrefixHash(2**64 - 1)]


def test_all_that_has_gathered_is_one_announcement() -> None:
    outbox = Outbox("g")
    ids = [outbox.reserve(worker, 7, 100, BOUNDARIES, 64) for worker in ("a", "b")]
    assert outbox.waiting.is_set()
    announcement = outbox.take()
    assert announcement is not None
    assert not outbox.waiting.is_set()
    assert (announcement.gateway, announcement.number) == ("g", 1)
    assert [reserved.id for reserved in announcement.reserved] == ids == [1, 2]
    first = announcement.reserved[0]
    assert (first.worker, first.epoch, first.tokens) == ("a", 7, 100)
    assert unpack_hashes(first.boundaries) == BOUNDARIES
    assert outbox.announced == 2


def test_what_ends_before_it_is_announced_is_never_heard_of() -> None:
    outbox = Outbox("g")
    outbox.release(outbox.reserve("a", 7, 100, BOUNDARIES, 64))
    assert outbox.take() is None


def test_a_release_waits_for_the_next_announcement_and_is_made_once() -> None:
    outbox = Outbox("g")
    id_ = outbox.reserve("a", 7, 100, BOUNDARIES, 64)
    outbox.take()
    outbox.release(id_)
    outbox.release(id_)
    assert not outbox.waiting.is_set()
    announcement = outbox.take()
    assert announcement is not None
    assert (list(announcement.reserved), list(announcement.released)) == ([], [id_])
    assert outbox.take() is None


def test_there_are_signs_of_life_while_something_is_reserved() -> None:
    outbox = Outbox("g")
    outbox.reserve("a", 7, 100, BOUNDARIES, 64)
    outbox.take()
    announcement = outbox.take()
    assert announcement is not None
    assert (announcement.number, len(announcement.reserved)) == (2, 0)


def test_what_does_not_fit_is_dropped_and_counted_and_needs_no_release() -> None:
    outbox = Outbox("g", limit=1)
    kept, dropped = (outbox.reserve("a", 7, 100, BOUNDARIES, 64) for _ in range(2))
    assert outbox.dropped == 1
    announcement = outbox.take()
    assert announcement is not None
    assert [reserved.id for reserved in announcement.reserved] == [kept]
    outbox.release(dropped)
    following = outbox.take()
    assert following is not None
    assert list(following.released) == []


def test_a_lost_announcement_leaves_a_gap_and_nothing_to_release() -> None:
    outbox = Outbox("g")
    ids = [outbox.reserve("a", 7, 100, BOUNDARIES, 64)]
    outbox.take()
    ids.append(outbox.reserve("a", 7, 100, BOUNDARIES, 64))
    announcement = outbox.take()
    assert announcement is not None
    outbox.lost(announcement)
    assert outbox.dropped == 1
    for id_ in ids:
        outbox.release(id_)
    assert outbox.take() is None
    outbox.reserve("a", 7, 100, BOUNDARIES, 64)
    following = outbox.take()
    assert following is not None
    assert following.number > announcement.number + 1


def test_what_clients_told_travels_until_it_arrives() -> None:
    outbox = Outbox("g", limit=2)
    told = [FinishRequest(reservation=f"other-{number}-m") for number in range(3)]
    assert [outbox.pass_on(each) for each in told] == [True, True, False]
    assert outbox.waiting.is_set()
    announcement = outbox.take()
    assert announcement is not None
    assert list(announcement.finished) == told[:2]
    assert outbox.take() is None
    assert outbox.pass_on(told[2])
    outbox.lost(announcement)
    again = outbox.take()
    assert again is not None
    assert list(again.finished) == told
    assert again.number > announcement.number + 1


def test_who_leaves_releases_all() -> None:
    outbox = Outbox("g")
    known = [outbox.reserve("a", 7, 100, BOUNDARIES, 64) for _ in range(2)]
    outbox.take()
    outbox.reserve("a", 7, 100, BOUNDARIES, 64)
    outbox.leave()
    announcement = outbox.take()
    assert announcement is not None
    assert (list(announcement.reserved), list(announcement.released)) == ([], known)
    outbox.release(known[0])
    assert outbox.take() is None


def test_each_pool_has_its_outbox() -> None:
    outboxes = Outboxes("g")
    assert outboxes.of("m") is outboxes.of("m")
    assert outboxes.of("m") is not outboxes.of("other")
    assert outboxes.of("m").gateway == outboxes.of("other").gateway == "g"
