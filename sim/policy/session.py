"""Session affinity: all requests of a session go to one worker, by consistent hashing."""

import xxhash
from radixgate.prefix import TOKEN_BYTES

from sim.policy.base import Choice, Job, Policy, Site
from sim.policy.ring import HashRing


class SessionAffinity(Policy):
    """A request that names no session goes by its first stride, or by all of it if it is shorter.

    Load is not looked at.
    """

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._ring = HashRing(place.id for place in site.places)

    def choose(self, job: Job) -> Choice:
        """To whom the session belongs."""
        beginning = memoryview(job.prompt.packed)[: self.site.stride * TOKEN_BYTES]
        key = xxhash.xxh3_64_intdigest(job.session.encode() or beginning)
        return Choice(self._ring.worker(key))
