"""The summaries of one model pool in Redis: every change of them, each one atomic Lua script.

A change is accepted only from the current life of a worker and only if it follows from what the
summary holds; it is then appended to the pool's stream of events, which all gateways read.
`lua/common.lua` says what the keys are, `gateway.summary.reader` reads them.
"""

import secrets
from importlib.resources import files

from radixgate.prefix import HASH_BYTES, unpack_hashes
from radixgate.v1.sync_pb2 import Delta, Digest, Hello, Load, Snapshot
from redis.asyncio import Redis

from gateway.summary.events import Changed, Registration
from gateway.summary.sink import Outcome, PoolMismatchError, StaleEpochError, Verdict

POOLS_KEY = "radixgate:pools"
"""The set of all models that ever had a worker."""


def pool_key(model: str) -> str:
    """What the keys of the pool of `model` begin with, and their hash tag."""
    return f"radixgate:{{{model}}}"


def epoch_digits(epoch: int) -> str:
    """An epoch as Redis has it: Lua numbers have 53 bits, so it compares text of equal length."""
    return f"{epoch:020d}"


def xor_bytes(digest: Digest) -> bytes:
    """The xor of a digest as Redis has it."""
    return digest.xor.to_bytes(HASH_BYTES, "little")


class SummaryStore:
    """The `SummarySink` in Redis; each call raises RedisError when Redis cannot be asked.

    Args:
        redis: a client that answers or fails within a second or so.
        model: names the pool.
        lease_ms: a worker that says nothing for so long is dropped.
    """

    def __init__(self, redis: Redis, model: str, lease_ms: int) -> None:
        self._redis = redis
        self._model = model
        self._pool = pool_key(model)
        self._lease_ms = lease_ms
        sources = files("gateway.summary") / "lua"
        common = (sources / "common.lua").read_text()
        self._scripts = {
            name: redis.register_script(common + (sources / f"{name}.lua").read_text())
            for name in ("register", "apply", "load", "stage", "leave", "doubt")
        }

    async def register(self, hello: Hello) -> Outcome:
        """As `SummarySink` says."""
        registration = Registration.of(hello)
        await self._redis.sadd(POOLS_KEY, self._model)
        verdict, seq, detail = await self._run(
            "register",
            hello.worker,
            hello.epoch,
            hello.SerializeToString(),
            registration.shape,
            secrets.randbelow(2**48),
        )
        if verdict == "PARITY":
            raise PoolMismatchError(registration, detail)
        return Outcome(Verdict(verdict), seq, detail)

    async def apply(self, worker: str, epoch: int, delta: Delta) -> Outcome:
        """As `SummarySink` says."""
        Changed.of(worker, epoch, delta)
        return await self._change(
            "apply",
            worker,
            epoch,
            delta.seq,
            delta.stored,
            b"".join(removal.hashes for removal in delta.removed),
            delta.digest.count,
            xor_bytes(delta.digest),
            delta.SerializeToString(),
        )

    async def load(self, worker: str, epoch: int, load: Load) -> Outcome:
        """As `SummarySink` says."""
        digest = load.digest
        return await self._change(
            "load",
            worker,
            epoch,
            load.seq,
            digest.count,
            xor_bytes(digest),
            load.SerializeToString(),
        )

    async def stage(self, worker: str, epoch: int, snapshot: Snapshot) -> Outcome:
        """As `SummarySink` says."""
        unpack_hashes(snapshot.hashes)
        return await self._change(
            "stage",
            worker,
            epoch,
            snapshot.seq,
            snapshot.index,
            int(snapshot.last),
            snapshot.hashes,
            snapshot.digest.count,
            xor_bytes(snapshot.digest),
        )

    async def leave(self, worker: str, epoch: int, *, departed: bool) -> Outcome:
        """As `SummarySink` says."""
        return await self._change("leave", worker, epoch, int(departed))

    async def doubt(self, worker: str, epoch: int, why: str) -> Outcome:
        """Say that the summary is not what its record says; the worker's next Load repairs it."""
        return await self._change("doubt", worker, epoch, why)

    async def _change(
        self, script: str, worker: str, epoch: int, *args: bytes | str | int
    ) -> Outcome:
        verdict, seq, detail = await self._run(script, worker, epoch, *args)
        return Outcome(Verdict(verdict), seq, detail)

    async def _run(
        self, script: str, worker: str, epoch: int, *args: bytes | str | int
    ) -> tuple[str, int, str]:
        verdict, seq, detail = await self._scripts[script](
            keys=[self._pool], args=[worker, epoch_digits(epoch), self._lease_ms, *args]
        )
        if verdict == b"STALE":
            raise StaleEpochError(worker, epoch, newest=int(detail))
        return verdict.decode(), int(seq), detail.decode()
