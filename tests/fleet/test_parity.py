"""Parity: each way in which a worker can differ is refused, naming both sides."""

from collections.abc import Callable

import pytest
from radixgate.v1.worker_pb2 import Golden, ModelCard

from gateway.fleet.parity import ParityError, check_card, check_golden
from tests.fleet.cards import card_of, recompute
from tests.summary.values import registration

WORKER = registration("w", 1)


def test_an_honest_worker_passes() -> None:
    check_card(WORKER, card_of(WORKER))
    check_golden(WORKER, card_of(WORKER), recompute)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("worker", "v", "worker 'w', Worker.Describe at that address says 'v'"),
        ("epoch", 2, "epoch 1, Worker.Describe at that address says 2"),
        ("fingerprint", "beef", "fingerprint 'f00d', Worker.Describe at that address says 'beef'"),
        ("stride", 32, "stride 64, Worker.Describe at that address says 32"),
        ("block_size", 32, "block_size 16, Worker.Describe at that address says 32"),
    ],
)
def test_a_card_that_is_not_what_hello_says(field: str, value: object, words: str) -> None:
    card = card_of(WORKER)
    setattr(card, field, value)
    with pytest.raises(ParityError, match=f"worker 'w' at {WORKER.address}: .*{words}"):
        check_card(WORKER, card)


def _other_token(card: ModelCard) -> None:
    card.golden.tokenized[1].ids[2] += 1


def _fewer_tokens(card: ModelCard) -> None:
    del card.golden.tokenized[0].ids[4:]


def _other_template(card: ModelCard) -> None:
    card.golden.rendered[0].text += "\n"


def _other_hash(card: ModelCard) -> None:
    card.golden.hashed[1].hashes[2] ^= 1


def _other_stride(card: ModelCard) -> None:
    card.stride = 32


def _other_fingerprint(card: ModelCard) -> None:
    card.fingerprint = "beef"


def _no_tokens(card: ModelCard) -> None:
    del card.golden.tokenized[:]


def _no_chat(card: ModelCard) -> None:
    del card.golden.rendered[:]


def _no_hashes(card: ModelCard) -> None:
    del card.golden.hashed[:]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_other_token, "token ids of 'größe' differ from place 2 on"),
        (
            _fewer_tokens,
            r"token ids of 'hello' differ from place 4 on: \[\] at the worker, \[111\]",
        ),
        (_other_template, r"chat template .* differ from place 17 on: '\\n' at the worker, ''"),
        (_other_hash, "prefix hashes in .*acme.* differ from place 2 on"),
        (_other_stride, "prefix hashes in .* differ from place 0 on"),
        (_other_fingerprint, "prefix hashes in .* differ from place 0 on"),
        (_no_tokens, "no golden token ids"),
        (_no_chat, "no golden chat"),
        (_no_hashes, "no golden prefix hashes"),
    ],
)
def test_a_worker_that_differs(change: Callable[[ModelCard], None], words: str) -> None:
    card = card_of(WORKER)
    change(card)
    with pytest.raises(ParityError, match=f"worker 'w' at {WORKER.address}: .*{words}"):
        check_golden(WORKER, card, recompute)


def test_a_tokenizer_that_the_gateway_cannot_use() -> None:
    def broken(card: ModelCard) -> Golden:
        raise ValueError("no such normalizer")

    with pytest.raises(ParityError, match="cannot use its model card: no such normalizer"):
        check_golden(WORKER, card_of(WORKER), broken)
