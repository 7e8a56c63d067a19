"""One worker's KvSync stream: which report goes where, and what is answered.

After a RESYNC the worker's deltas and the rest of a snapshot under way do not follow from anything,
so they are passed over until the first chunk of the next snapshot.
"""

import logging

from radixgate.v1.sync_pb2 import Ack, Delta, Hello, Load, Report, Snapshot

from gateway.summary.pool import SUMMARY, Pool
from gateway.summary.sink import Outcome, Verdict

logger = logging.getLogger(__name__)


class Session:
    """Every method raises RegistrationError when the worker may not be in the pool (any more).

    Args:
        hello: the first report of the stream.
        pool: of the model in it.
        lease_ms: what the worker is told.
    """

    def __init__(self, hello: Hello, pool: Pool, lease_ms: int) -> None:
        self._hello = hello
        self._worker = hello.worker
        self._epoch = hello.epoch
        self._pool = pool
        self._lease_ms = lease_ms
        self._awaits_snapshot = False
        self._draining = False

    async def open(self) -> Ack:
        """Register; the worker goes on after what the summary holds."""
        outcome = await self._register()
        if outcome.seq > self._hello.seq:
            return self._resync(outcome.seq, "the summary is ahead of the worker")
        return self._ack(Ack.ACTION_CONTINUE, outcome.seq)

    async def take(self, report: Report) -> Ack | None:
        """Take a report; what to answer, if anything.

        Raises:
            ValueError: the report is malformed.
        """
        match report.WhichOneof("report"):
            case "delta":
                return await self._take_delta(report.delta)
            case "load":
                return await self._take_load(report.load)
            case "snapshot":
                return await self._take_snapshot(report.snapshot)
            case other:
                raise ValueError(
                    f"worker {self._worker!r} sent {other or 'an empty report'} where a Delta, a"
                    " Load or a Snapshot was expected"
                )

    async def close(self) -> None:
        """The stream ended. A worker that said it is draining leaves for good."""
        await self._pool.write(
            lambda sink: sink.leave(self._worker, self._epoch, departed=self._draining)
        )

    async def _take_delta(self, delta: Delta) -> Ack | None:
        if self._awaits_snapshot:
            return None
        return await self._answer(
            await self._pool.write(lambda sink: sink.apply(self._worker, self._epoch, delta))
        )

    async def _take_load(self, load: Load) -> Ack | None:
        outcome = await self._pool.write(lambda sink: sink.load(self._worker, self._epoch, load))
        self._draining = load.draining and outcome.verdict is not Verdict.UNKNOWN
        if outcome.verdict is Verdict.RESYNC and self._awaits_snapshot:
            return self._ack(Ack.ACTION_CONTINUE, outcome.seq)
        return await self._answer(outcome)

    async def _take_snapshot(self, snapshot: Snapshot) -> Ack | None:
        if snapshot.index == 0:
            self._awaits_snapshot = False
        if self._awaits_snapshot:
            return None
        answer = await self._answer(
            await self._pool.write(lambda sink: sink.stage(self._worker, self._epoch, snapshot))
        )
        complete = snapshot.last or answer.action == Ack.ACTION_RESYNC
        return answer if complete else None

    async def _register(self) -> Outcome:
        return await self._pool.write(lambda sink: sink.register(self._hello))

    async def _answer(self, outcome: Outcome) -> Ack:
        match outcome.verdict:
            case Verdict.OK:
                return self._ack(Ack.ACTION_CONTINUE, outcome.seq)
            case Verdict.RESYNC:
                return self._resync(outcome.seq, outcome.detail)
            case Verdict.UNKNOWN:
                outcome = await self._register()
                return self._resync(outcome.seq, "the worker was not registered any more")

    def _resync(self, seq: int, why: str) -> Ack:
        logger.info("worker %s epoch %d: resync: %s", self._worker, self._epoch, why)
        self._pool.mismatches[SUMMARY] += 1
        self._awaits_snapshot = True
        return self._ack(Ack.ACTION_RESYNC, seq, why)

    def _ack(self, action: Ack.Action.ValueType, seq: int, message: str = "") -> Ack:
        return Ack(
            action=action,
            seq=seq,
            message=message,
            lease_ms=self._lease_ms,
            draining=self._draining,
        )
