"""A model card with golden vectors of a tokenizer that a test can compute: one id for a byte."""

import json

from radixgate.namespace import Namespace
from radixgate.prefix import boundary_hashes, pack_tokens
from radixgate.v1.generate_pb2 import Scope
from radixgate.v1.worker_pb2 import Golden, ModelCard

from gateway.summary.events import Registration


def tokenize(text: str) -> list[int]:
    return list(text.encode())


def render(messages_json: str) -> str:
    return "".join(f"<{turn['role']}>{turn['content']}" for turn in json.loads(messages_json))


def recompute(card: ModelCard) -> Golden:
    """The gateway's side of the parity check."""
    return Golden(
        tokenized=[
            Golden.Tokenized(text=golden.text, ids=tokenize(golden.text))
            for golden in card.golden.tokenized
        ],
        rendered=[
            Golden.Rendered(messages_json=golden.messages_json, text=render(golden.messages_json))
            for golden in card.golden.rendered
        ],
    )


def card_of(registration: Registration) -> ModelCard:
    """What an honest worker describes itself as."""
    packed = pack_tokens(range(200))
    chat = json.dumps([{"role": "user", "content": "Wie geht's?"}])
    golden = Golden(
        tokenized=[Golden.Tokenized(text=text, ids=tokenize(text)) for text in ("hello", "größe")],
        rendered=[Golden.Rendered(messages_json=chat, text=render(chat))],
        hashed=[
            Golden.Hashed(
                scope=Scope(tenant=tenant),
                packed=packed,
                hashes=boundary_hashes(
                    packed,
                    registration.stride,
                    Namespace(registration.fingerprint, tenant=tenant).seed(),
                ),
            )
            for tenant in ("", "acme")
        ],
    )
    return ModelCard(
        worker=registration.worker,
        epoch=registration.epoch,
        model=registration.model,
        fingerprint=registration.fingerprint,
        block_size=registration.block_size,
        stride=registration.stride,
        num_blocks=registration.num_blocks,
        chat_template="{{ messages }}",
        golden=golden,
    )
