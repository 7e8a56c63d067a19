"""What a worker holds, what Redis says it holds, and what a gateway believes."""

from collections.abc import Sequence

import grpc
import redis
from radixgate.client import Client
from radixgate.digest import SetDigest
from radixgate.prefix import unpack_hashes
from radixgate.v1.worker_pb2 import InventoryRequest
from radixgate.v1.worker_pb2_grpc import WorkerStub

from gateway.summary.store import pool_key
from tests.e2e.processes import wait_until


def held(address: str) -> set[int]:
    """The prefix hashes of a worker's own radix tree."""
    with grpc.insecure_channel(address) as channel:
        chunks = WorkerStub(channel).Inventory(InventoryRequest(), timeout=10)
        return {name for chunk in chunks for name in unpack_hashes(chunk.hashes)}


def summaries(redis_port: int, model: str) -> dict[tuple[str, int], set[int]]:
    """Every summary set in Redis of `model`, by worker and epoch."""
    prefix = f"{pool_key(model)}:summary"
    with redis.Redis(port=redis_port) as client:
        found = {}
        for key in client.scan_iter(match=f"{_escaped(prefix)}:*"):
            worker, _, epoch = key.decode().removeprefix(f"{prefix}:").rpartition(":")
            members = b"".join(client.smembers(key))
            found[worker, int(epoch)] = set(unpack_hashes(members))
        return found


def mirrored(gateway: str) -> dict[tuple[str, int], SetDigest]:
    """The digest of a gateway's mirror of every worker, by worker and epoch."""
    with Client(gateway) as client:
        return {
            (info.worker, info.epoch): SetDigest(info.summary.count, info.summary.xor)
            for info in client.workers(timeout=10)
        }


def true_summaries(gateway: str) -> dict[tuple[str, int], set[int]]:
    """What the workers that a gateway knows really hold, by worker and epoch."""
    with Client(gateway) as client:
        return {
            (info.worker, info.epoch): held(info.address) for info in client.workers(timeout=10)
        }


def all_agree(
    gateways: Sequence[str], redis_port: int, model: str, *, workers: int = 2, seconds: float = 10.0
) -> None:
    """Wait until Redis and every gateway believe exactly what the workers hold.

    `seconds`: fails after so many. `workers`: that there must be; some of them hold something.
    """

    def check() -> bool:
        truth = true_summaries(gateways[0])
        digests = {key: SetDigest.of(names) for key, names in truth.items()}
        # Redis has no empty sets.
        held_somewhere = {key: names for key, names in truth.items() if names}
        return (
            len(truth) == workers
            and len(held_somewhere) > 0
            and summaries(redis_port, model) == held_somewhere
            and all(mirrored(gateway) == digests for gateway in gateways)
        )

    wait_until(check, seconds, "Redis, mirrors and workers agree")


def _escaped(pattern: str) -> str:
    return pattern.replace("[", "\\[").replace("]", "\\]").replace("*", "\\*").replace("?", "\\?")
