"""From what a client asks to what a worker takes: checked, tokenized, its model and seed found."""

import random
import uuid
from typing import NamedTuple

from grpc import StatusCode
from radixgate.limits import check_chat, check_generate, check_prompt, check_text, packed_prompt
from radixgate.namespace import Namespace, NamespaceSeed
from radixgate.refused import RefusedError, invalid_argument
from radixgate.v1.gateway_pb2 import ChatRequest
from radixgate.v1.generate_pb2 import GenerateRequest, Scope
from radixgate.v1.worker_pb2 import ModelCard

from gateway.fleet.fleet import Fleet
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


class Preparer:
    """Args: `fleet` knows the models and their cards; `codecs` tokenize."""

    def __init__(self, fleet: Fleet, codecs: Codecs) -> None:
        self._fleet = fleet
        self._codecs = codecs

    async def prepare(self, request: GenerateRequest | ChatRequest) -> Prepared:
        """Make `request` ready for any worker of its model.

        Raises:
            RefusedError: INVALID_ARGUMENT, a value is out of its range or no model is named where
                there are several; NOT_FOUND, there is no such model; UNAVAILABLE, it has no worker
                yet.
        """
        with invalid_argument():
            if isinstance(request, ChatRequest):
                check_chat(request)
            else:
                check_generate(request)
                _check_whole(request)
        card = self._card(self._model(request.model))
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
        return Prepared(ready, Prompt(packed, card.stride, _seed(card, request.scope)), card.model)

    def _model(self, name: str) -> str:
        models = self._fleet.models()
        if not models:
            raise RefusedError(
                StatusCode.UNAVAILABLE, "no worker has registered at this gateway yet"
            )
        there_are = f"there are {', '.join(models)}"
        if not name and len(models) > 1:
            raise RefusedError(StatusCode.INVALID_ARGUMENT, f"model: not named, and {there_are}")
        if name and name not in models:
            raise RefusedError(StatusCode.NOT_FOUND, f"model {name!r} is not served; {there_are}")
        return name or models[0]

    def _card(self, model: str) -> ModelCard:
        card = self._fleet.card(model)
        if card is None:
            workers = "; ".join(
                f"{worker.id}: {worker.problem or 'its model card is being checked'}"
                for worker in self._fleet.workers(model)
            )
            raise RefusedError(
                StatusCode.UNAVAILABLE, f"model {model!r} has no worker yet: {workers}"
            )
        return card

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


def _seed(card: ModelCard, scope: Scope) -> NamespaceSeed:
    return Namespace(card.fingerprint, scope.adapter, scope.tenant, scope.salt).seed()
