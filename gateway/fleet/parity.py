"""Parity: a worker is trusted only when the gateway gets the same golden vectors as the worker.

A worker whose tokenizer, template, stride or hash differs would name its prefixes in a way that no
prompt ever matches. That would be silent, so it is an error at registration instead. Pure.
"""

from collections.abc import Callable, Sequence

from radixgate.namespace import Namespace
from radixgate.prefix import boundary_hashes
from radixgate.v1.worker_pb2 import Golden, ModelCard

from gateway.summary.events import Registration
from gateway.summary.sink import RegistrationError

RecomputeText = Callable[[ModelCard], Golden]
"""The gateway's own answers: for each `tokenized` and `rendered` of `card.golden`, in that order,
the ids or the text that the gateway gets for the same input. Raises ValueError when the tokenizer
or the template cannot be used at all. Called in a thread."""

SHOWN = 16
"""Places of a difference that an error shows."""


class ParityError(RegistrationError):
    """A worker and this gateway disagree; the message says on what, and shows both sides."""


def check_card(registration: Registration, card: ModelCard) -> None:
    """Compare what a worker's Hello says of it with what its Describe says.

    Raises:
        ParityError: at the first difference.
    """
    for field in ("worker", "epoch", "model", "fingerprint", "block_size", "stride", "num_blocks"):
        announced, described = getattr(registration, field), getattr(card, field)
        if announced != described:
            raise ParityError(
                f"{_name(registration)}: its Hello says {field} {announced!r}, Worker.Describe at"
                f" that address says {described!r}; is it the address of another worker?"
            )


def check_golden(registration: Registration, card: ModelCard, recompute: RecomputeText) -> None:
    """Compare the golden vectors of a worker with what this gateway gets.

    Raises:
        ParityError: at the first difference, or when there is nothing to compare.
    """
    _check_hashes(_name(registration), card)
    _check_text(_name(registration), card, recompute)


def _name(registration: Registration) -> str:
    return f"worker {registration.worker!r} at {registration.address}"


def _check_hashes(who: str, card: ModelCard) -> None:
    if not card.golden.hashed:
        raise ParityError(f"{who}: its model card has no golden prefix hashes to check")
    for golden in card.golden.hashed:
        scope = golden.scope
        namespace = Namespace(card.fingerprint, scope.adapter, scope.tenant, scope.salt)
        here = boundary_hashes(golden.packed, card.stride, namespace.seed())
        _compare(who, f"prefix hashes in {namespace}", list(golden.hashes), here)


def _check_text(who: str, card: ModelCard, recompute: RecomputeText) -> None:
    golden = card.golden
    if not golden.tokenized:
        raise ParityError(f"{who}: its model card has no golden token ids to check")
    if card.chat_template and not golden.rendered:
        raise ParityError(f"{who}: its model card has no golden chat to check its template with")
    try:
        here = recompute(card)
    except ValueError as error:
        raise ParityError(f"{who}: this gateway cannot use its model card: {error}") from error
    for theirs, ours in zip(golden.tokenized, here.tokenized, strict=True):
        _compare(who, f"token ids of {theirs.text!r}", list(theirs.ids), list(ours.ids))
    for chat, rendered in zip(golden.rendered, here.rendered, strict=True):
        _compare(who, f"chat template on {chat.messages_json}", chat.text, rendered.text)


def _compare(who: str, what: str, theirs: Sequence[object], ours: Sequence[object]) -> None:
    if theirs != ours:
        pairs = enumerate(zip(theirs, ours, strict=False))
        shorter = min(len(theirs), len(ours))
        at = next((index for index, (left, right) in pairs if left != right), shorter)
        raise ParityError(
            f"{who}: {what} differ from place {at} on: {theirs[at : at + SHOWN]!r} at the worker,"
            f" {ours[at : at + SHOWN]!r} at this gateway"
        )
