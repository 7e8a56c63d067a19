"""From a `GenerateRequest` on the wire to the engine's `Request`, or a refusal with its status.

Codes: INVALID_ARGUMENT for what no worker could serve, NOT_FOUND for a model or adapter that is not
here, FAILED_PRECONDITION for a prompt that only a worker with more KV memory could take.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

import grpc
from radixgate import limits
from radixgate.prefix import TOKEN_BYTES
from radixgate.refused import RefusedError, invalid_argument
from radixgate.v1.generate_pb2 import GenerateRequest, Sampling

from worker.engine.request import Request, SamplingParams
from worker.serve.scopes import Scopes


@dataclass(frozen=True, slots=True)
class Served:
    """What this worker serves.

    Attributes:
        model: its name on the wire.
        scopes: remembers those of requests.
        max_context: tokens of prompt and output that the model takes.
        kv_tokens: tokens of prompt and output that the KV memory holds for a tenant.
    """

    model: str
    scopes: Scopes
    vocab_size: int
    max_context: int
    kv_tokens: Callable[[str], int]
    eos_token_ids: frozenset[int]

    def admit(self, message: GenerateRequest) -> Request:
        """The engine's request: output clamped to context and KV memory, its seed drawn if unset.

        Raises:
            RefusedError: see the module.
        """
        if message.model not in ("", self.model):
            raise RefusedError(
                grpc.StatusCode.NOT_FOUND,
                f"model {message.model!r} is not here; this worker serves {self.model!r}",
            )
        if message.scope.adapter:
            raise RefusedError(
                grpc.StatusCode.NOT_FOUND,
                f"adapter {message.scope.adapter!r} is not here; this worker has no adapters",
            )
        with invalid_argument():
            limits.check_generate(message)
            packed = limits.packed_prompt(message)
            limits.check_resumed(message, packed)
            limits.check_prompt(
                packed,
                vocab_size=self.vocab_size,
                max_context=self.max_context,
                resumed_tokens=message.resumed_tokens,
            )
            self._check_stop_tokens(message)

        prompt_tokens = len(packed) // TOKEN_BYTES - message.resumed_tokens
        kv_tokens = self.kv_tokens(message.scope.tenant)
        room = min(self.max_context, kv_tokens) - prompt_tokens
        if room < max(1, message.resumed_tokens):
            raise RefusedError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"prompt: {prompt_tokens} tokens leave no room for {_output(message)} in the "
                f"worker's KV memory of {kv_tokens} tokens; give it more (--kv-memory)",
            )
        stopping, scope = message.stopping, message.scope
        prompt_bytes = prompt_tokens * TOKEN_BYTES
        ends = frozenset() if stopping.ignore_eos else self.eos_token_ids
        return Request(
            request_id=message.request_id,
            namespace=self.scopes.use(scope),
            prompt=packed[:prompt_bytes],
            max_tokens=min(room, stopping.max_tokens) if stopping.HasField("max_tokens") else room,
            sampling=_sampling(message.sampling),
            stop=tuple(stopping.stop),
            stop_token_ids=ends.union(stopping.stop_token_ids),
            tenant=scope.tenant,
            priority=message.priority,
            counted=not message.resumed_tokens,
            resumed=packed[prompt_bytes:],
        )

    def _check_stop_tokens(self, message: GenerateRequest) -> None:
        for token in message.stopping.stop_token_ids:
            if token >= self.vocab_size:
                raise ValueError(
                    f"stopping.stop_token_ids: {token} is outside the vocabulary of "
                    f"{self.vocab_size}"
                )


def _output(message: GenerateRequest) -> str:
    resumed = message.resumed_tokens
    return f"the {resumed} tokens of output that there are" if resumed else "output"


def _sampling(message: Sampling) -> SamplingParams:
    return SamplingParams(
        temperature=message.temperature if message.HasField("temperature") else 1.0,
        top_p=message.top_p if message.HasField("top_p") else 1.0,
        top_k=message.top_k,
        seed=message.seed if message.HasField("seed") else random.getrandbits(64),
    )
