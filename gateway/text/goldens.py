"""The gateway's own answers to the golden text vectors of a model card, for the parity check."""

import json

from radixgate.prefix import unpack_tokens
from radixgate.v1.worker_pb2 import Golden, ModelCard

from gateway.text.codec import Codec


def recompute_text(card: ModelCard) -> Golden:
    """What this gateway gets for each `tokenized` and `rendered` input of `card.golden`, in order.

    Raises:
        ValueError: the card's tokenizer or template cannot be used, or refuses an input.
    """
    codec = Codec(card)
    return Golden(
        tokenized=[
            Golden.Tokenized(text=golden.text, ids=unpack_tokens(codec.encode(golden.text)))
            for golden in card.golden.tokenized
        ],
        rendered=[
            Golden.Rendered(
                messages_json=golden.messages_json,
                text=codec.render(json.loads(golden.messages_json)),
            )
            for golden in card.golden.rendered
        ],
    )
