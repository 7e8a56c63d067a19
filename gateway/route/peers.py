"""What other gateways have reserved, next to what this one has.

A gateway numbers its announcements. One that comes again or late is ignored; after a gap, and when
the gateway has been silent for too long, nothing that it reserved before counts any more, since
its releases may have been lost with it. Pure: time comes in as seconds of the reservations' clock,
so the clocks of other gateways do not matter.
"""

from dataclasses import dataclass, field

from radixgate.prefix import unpack_hashes
from radixgate.v1.peer_pb2 import Announcement

from gateway.route.reservation import Reservation
from gateway.route.reservations import Reservations


@dataclass(slots=True)
class _Peer:
    """One life of a gateway, as far as it was heard."""

    number: int
    heard_at: float
    live: dict[int, Reservation] = field(default_factory=dict)


class Peers:
    """Args: `reservations` of all gateways; after `silence` seconds a gateway counts as gone."""

    def __init__(self, reservations: Reservations, silence: float) -> None:
        self._reservations = reservations
        self._silence = silence
        # In the order in which they were last heard.
        self._peers: dict[str, _Peer] = {}

    def heard(self, announcement: Announcement, now: float) -> None:
        """Take what another gateway has announced."""
        self.expire(now)
        peer = self._peers.pop(announcement.gateway, None)
        if peer is not None and announcement.number > peer.number + 1:
            self._void(peer)
            peer = None
        if peer is None:
            peer = _Peer(announcement.number - 1, now)
        self._peers[announcement.gateway] = peer
        peer.heard_at = now
        if announcement.number <= peer.number:
            return
        peer.number = announcement.number
        for reserved in announcement.reserved:
            reservation = Reservation(
                worker=reserved.worker,
                tokens=reserved.tokens,
                boundaries=unpack_hashes(reserved.boundaries),
                stride=reserved.stride,
                made_at=now,
                weight=reserved.weight or 1.0,
                gateway=announcement.gateway,
                id=reserved.id,
            )
            peer.live[reserved.id] = reservation
            self._reservations.reserve(reservation)
        for id_ in announcement.released:
            if id_ in peer.live:
                self._reservations.release(peer.live[id_])

    def ended(self, reservation: Reservation) -> None:
        """A reservation of another gateway has ended, for whatever reason."""
        peer = self._peers.get(reservation.gateway)
        if peer is not None:
            peer.live.pop(reservation.id, None)

    def expire(self, now: float) -> None:
        """Forget the gateways that have been silent for too long."""
        while self._peers:
            gateway, peer = next(iter(self._peers.items()))
            if now - peer.heard_at <= self._silence:
                return
            del self._peers[gateway]
            self._void(peer)

    def _void(self, peer: _Peer) -> None:
        for reservation in list(peer.live.values()):
            self._reservations.lapse(reservation)
