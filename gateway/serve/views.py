"""The gateway's state as the messages that answer Explain, ListWorkers and ListModels. Pure."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from radixgate.digest import SetDigest
from radixgate.v1 import gateway_pb2
from radixgate.v1.gateway_pb2 import Candidate, ModelInfo, WorkerInfo
from radixgate.v1.sync_pb2 import Digest
from radixgate.v1.worker_pb2 import ModelCard

from gateway.fleet.discovery.discovered import Discovered
from gateway.fleet.discovery.endpoints import Endpoint
from gateway.fleet.discovery.roster import Listing, listing_of
from gateway.fleet.trust import Trust
from gateway.fleet.worker import FleetWorker
from gateway.route.router import Estimate, Prompt
from gateway.serve.queue import Queue

TRUST: Final = {
    Trust.LIVE: gateway_pb2.TRUST_LIVE,
    Trust.SUSPECT: gateway_pb2.TRUST_SUSPECT,
    Trust.LOST: gateway_pb2.TRUST_LOST,
}
LISTING: Final = {
    Listing.UNLISTED: gateway_pb2.LISTING_UNLISTED,
    Listing.READY: gateway_pb2.LISTING_READY,
    Listing.NOT_READY: gateway_pb2.LISTING_NOT_READY,
    Listing.TERMINATING: gateway_pb2.LISTING_TERMINATING,
    Listing.GONE: gateway_pb2.LISTING_GONE,
}


def candidate(estimate: Estimate, *, circuit: str, chosen: bool) -> Candidate:
    """One worker as a decision saw it; `circuit`, why it is left alone."""
    return Candidate(
        worker=estimate.worker.id,
        address=estimate.worker.address,
        trust=TRUST[estimate.belief.trust],
        trust_reason=estimate.belief.reason,
        matched_tokens=estimate.matched_tokens,
        expected_tokens=estimate.expected_tokens,
        **asdict(estimate.terms),
        total_ms=estimate.total_ms,
        free_blocks=estimate.free_blocks,
        chosen=chosen,
        circuit=circuit,
    )


def reason(estimates: Sequence[Estimate], barred: Sequence[Estimate], prompt: Prompt) -> str:
    """Why the first of `estimates` is first, who is not believed, and that the `barred` are not
    among them.
    """
    sentences = [_first(estimates, prompt)]
    sentences += [
        f"{each.worker.id} says it holds {each.matched_tokens} and is doubted: {doubt.reason}."
        for each in estimates
        if each.matched_tokens and (doubt := each.worker.doubt)
    ]
    if barred:
        names = ", ".join(estimate.worker.id for estimate in barred)
        sentences.append(f"Left alone for a while, because requests failed there: {names}.")
    return " ".join(sentences)


def _first(estimates: Sequence[Estimate], prompt: Prompt) -> str:
    best = estimates[0]
    sentence = (
        f"{best.worker.id} is expected to hold {best.believed_tokens:.0f} of {prompt.tokens} prompt"
        f" tokens and to take {best.total_ms:.1f} ms until the first token"
    )
    if len(estimates) == 1:
        return f"{sentence}; it is the only candidate."
    second = min(estimates[1:], key=lambda estimate: estimate.total_ms)
    difference = second.total_ms - best.total_ms
    recomputed = round(best.believed_tokens - second.believed_tokens)
    if difference <= 0 and recomputed > 0:
        return (
            f"{sentence}, {-difference:.1f} ms more than {second.worker.id}, which would compute"
            f" {recomputed} tokens again; a worker that computes is kept from other requests."
        )
    if difference <= 0:
        return (
            f"{sentence}, nearly the same as {second.worker.id}; near ties go to the worker that"
            " holds more, then to the cheaper one, then to the one with more places."
        )
    return f"{sentence}, {difference:.1f} ms less than {second.worker.id}."


def worker_info(worker: FleetWorker, summary: SetDigest, circuit: str, now: float) -> WorkerInfo:
    """One worker: `summary` of it in the mirror; `circuit`, why it is left alone; `now` on the
    fleet's clock.
    """
    belief, place = worker.belief(now), worker.place
    pod = place.endpoint if place is not None else None
    return WorkerInfo(
        worker=worker.id,
        epoch=worker.epoch,
        address=worker.address,
        model=worker.registration.model,
        trust=TRUST[belief.trust],
        trust_reason=belief.reason,
        summary=Digest(count=summary.count, xor=summary.xor),
        heard_seconds_ago=now - worker.heard_at,
        load=worker.load,
        circuit=circuit,
        listing=LISTING[place.listing] if place is not None else gateway_pb2.LISTING_UNSPECIFIED,
        pod=pod.name if pod is not None else "",
    )


def pod_info(pod: Endpoint) -> WorkerInfo:
    """A pod that is listed, though no worker there has ever reported."""
    address = min(pod.addresses, default="")
    missing = "no worker there has reported" if address else "it has no address yet"
    listing = listing_of(pod)
    return WorkerInfo(
        address=address,
        trust=gateway_pb2.TRUST_LOST,
        trust_reason=f"{listing.value}; {missing}",
        listing=LISTING[listing],
        pod=pod.name,
    )


def discovery_info(found: Discovered) -> gateway_pb2.Discovery:
    """By what pods are found, and how fresh that is."""
    return gateway_pb2.Discovery(
        selector=found.selector, confirmed_seconds_ago=found.age(), problem=found.problem
    )


def model_info(card: ModelCard, aliases: list[str], workers: int, queue: Queue) -> ModelInfo:
    """One model, its other names, how many workers it has, and what waits for them."""
    return ModelInfo(
        model=card.model,
        fingerprint=card.fingerprint,
        max_context=card.max_context,
        block_size=card.block_size,
        stride=card.stride,
        workers=workers,
        waiting=len(queue),
        drain_seconds=queue.drain_seconds(),
        aliases=aliases,
    )
