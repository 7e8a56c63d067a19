"""From what a client asks to what a worker takes: checked, tokenized, its seed drawn."""

import random
import uuid
from typing import NamedTuple

from radixgate.limits import check_chat, check_generate, check_prompt, check_text, packed_prompt
from radixgate.namespace import Namespace, NamespaceSeed
from radixgate.refused import invalid_argument
from radixgate.v1.gateway_pb2 import ChatRequest
from radixgate.v1.generate_pb2 import GenerateRequest, Scope
from radixgate.v1.worker_pb2 import ModelCard

from gateway.route.router import Prompt
from gateway.text.codecs import Codecs


class Prepared(NamedTuple):
    """Args: `request` as workers take it; its `prompt` as routing takes it; the `model` found."""

    request: GenerateRequest
    prompt: Prompt
    model: str

    @property
    def kv_tokens(self) -> int:
        """Tokens that a worker's KV memory must at least hold to serve it."""
        # NOTE: of what is resumed, the end alone may be left.
        return self.prompt.tokens + (0 if self.request.resumed_tokens else 1)

    def resumed(self, request: GenerateRequest) -> "Prepared":
        """The same with a `request` for the rest."""
        prompt = Prompt(request.packed, self.prompt.stride, self.prompt.seed)
        return Prepared(request, prompt, self.model)


def check(request: GenerateRequest | ChatRequest) -> None:
    """Check all of `request` that does not depend on a model.

    Raises:
        RefusedError: INVALID_ARGUMENT, a value is out of its range.
    """
    with invalid_argument():
        if isinstance(request, ChatRequest):
            check_chat(request)
        else:
            check_generate(request)
            _check_whole(request)


class Preparer:
    """Args: `codecs` tokenize."""

    def __init__(self, codecs: Codecs) -> None:
        self._codecs = codecs

    async def prepare(self, request: GenerateRequest | ChatRequest, card: ModelCard) -> Prepared:
        """Make `request`, which was checked, ready for any worker of the model of `card`.

        Raises:
            RefusedError: INVALID_ARGUMENT, the model cannot take its prompt.
        """
        with invalid_argument():
            packed = await self._pack(card, request)
            check_prompt(packed, vocab_size=card.vocab_size, max_context=card.max_context)
        ready = GenerateRequest(
            request_id=request.request_id or uuid.uuid4().hex,
            model=card.model,
            packed=packed,
            scope=request.scope,
            sampling=request.sampling,
            stopping=request.stopping,
            priority=request.priority,
        )
        if not ready.sampling.HasField("seed"):
            ready.sampling.seed = random.getrandbits(64)
        return Prepared(
            ready, Prompt(packed, card.stride, seed_of(card, request.scope)), card.model
        )

    async def _pack(self, card: ModelCard, request: GenerateRequest | ChatRequest) -> bytes:
        if isinstance(request, ChatRequest):
            messages = [
                {"role": message.role, "content": message.content} for message in request.messages
            ]
            check_text(sum(len(message["content"]) for message in messages), card.max_context)
            return await self._codecs.call(card, lambda codec: codec.encode_chat(messages))
        if request.WhichOneof("prompt") == "text":
            check_text(len(request.text), card.max_context)
            return await self._codecs.call(card, lambda codec: codec.encode(request.text))
        return packed_prompt(request)


def _check_whole(request: GenerateRequest) -> None:
    if request.resumed_tokens:
        raise ValueError(
            f"resumed_tokens: {request.resumed_tokens}; only gateways set it; leave it unset"
        )


def seed_of(card: ModelCard, scope: Scope) -> NamespaceSeed:
    """Of the namespace in which a request to the model of `card` lives."""
    return Namespace(card.fingerprint, scope.adapter, scope.tenant, scope.salt).seed()
