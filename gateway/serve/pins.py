"""Pins of clients: which worker keeps a prompt, and who is asked to give it up."""

import asyncio
from typing import Final

import grpc.aio
from grpc import StatusCode
from radixgate.refused import RefusedError
from radixgate.v1.generate_pb2 import Pinned
from radixgate.v1.worker_pb2 import PinPrompt, UnpinPrompt
from radixgate.v1.worker_pb2_grpc import WorkerStub

from gateway.fleet.channels import Channels
from gateway.fleet.fleet import Fleet
from gateway.fleet.worker import FleetWorker
from gateway.serve.choose import Chooser
from gateway.serve.dispatch import MAX_ATTEMPTS, RETRYABLE
from gateway.serve.prepare import Prepared

UNPIN_SECONDS: Final = 5.0


class Pins:
    """Args: `fleet`, the workers; `chooser`, which ranks them; `channels` to them."""

    def __init__(self, fleet: Fleet, chooser: Chooser, channels: Channels) -> None:
        self._fleet = fleet
        self._chooser = chooser
        self._channels = channels

    async def pin(self, prepared: Prepared, ttl: float, seconds: float | None) -> Pinned:
        """Keep a prompt for `ttl` seconds where most of it is, or else where it would be served.

        `seconds` are left to the client; workers that cannot are passed over for the next best.

        Raises:
            RefusedError: as the last worker says; or there is no worker.
        """
        estimates = self._chooser.estimates(prepared)
        # NOTE: stable, so of those that hold the same the one that would serve it comes first.
        estimates.sort(key=lambda estimate: -estimate.belief.weight * estimate.matched_tokens)
        message = PinPrompt(prompt=prepared.request, ttl_seconds=ttl)
        refusals: list[RefusedError] = []
        for estimate in estimates[:MAX_ATTEMPTS]:
            worker = WorkerStub(self._channels.get(estimate.worker.address))
            try:
                return await worker.Pin(message, timeout=seconds)
            except grpc.aio.AioRpcError as error:
                refusals.append(_refused(estimate.worker, error))
                if error.code() not in RETRYABLE:
                    break
        raise RefusedError(refusals[-1].code, "; ".join(each.message for each in refusals))

    async def unpin(self, prepared: Prepared) -> list[str]:
        """Give up the pin of a prompt at all workers of its model; sorted ids of those that had it.

        Raises:
            RefusedError: NOT_FOUND, none had it; or what kept a worker from saying.
        """
        workers = sorted(self._fleet.workers(prepared.model), key=lambda worker: worker.id)
        answers = await asyncio.gather(*(self._unpin(worker, prepared) for worker in workers))
        found = [worker.id for worker, refused in zip(workers, answers, strict=True) if not refused]
        refusals = [refused for refused in answers if refused]
        if found or not refusals:
            return found
        worst = next((each for each in refusals if each.code is not StatusCode.NOT_FOUND), None)
        if worst:
            raise worst
        raise RefusedError(StatusCode.NOT_FOUND, "; ".join(refused.message for refused in refusals))

    async def _unpin(self, worker: FleetWorker, prepared: Prepared) -> RefusedError | None:
        message = UnpinPrompt(prompt=prepared.request)
        try:
            stub = WorkerStub(self._channels.get(worker.address))
            await stub.Unpin(message, timeout=UNPIN_SECONDS)
        except grpc.aio.AioRpcError as error:
            return _refused(worker, error)
        return None


def _refused(worker: FleetWorker, error: grpc.aio.AioRpcError) -> RefusedError:
    where = f"worker {worker.id!r} at {worker.address}"
    return RefusedError(error.code(), f"{where}: {error.details()}")
