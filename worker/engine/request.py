"""A request as the engine takes it: every value validated and resolved, no defaults left open."""

from dataclasses import dataclass
from functools import cached_property

from radixgate.namespace import NamespaceSeed
from radixgate.prefix import TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose the next token; ranges as in the `Sampling` message.

    Args: `temperature` 0 is greedy; `top_p` 1 and `top_k` 0 keep all tokens; `seed` is 64 bits.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Request:
    """One generation.

    Args:
        request_id: names it in logs and errors; need not be unique.
        namespace: only sequences of the same namespace share KV.
        tenant: whose share of the KV memory it takes; part of the namespace.
        prompt: token ids, little-endian uint32, at least one.
        max_tokens: output tokens at most; prompt and output together fit the context and the pool.
        stop: generation ends before the first of these strings to be completed.
        stop_token_ids: generation ends at any of these, end-of-sequence tokens included.
        priority: higher goes first.
        counted: in the metrics of requests; False when no client waits for it, or the worker that
            it began at has counted it.
        resumed: output that another worker generated, as `prompt`; fewer than `max_tokens`, or all.
    """

    request_id: str
    namespace: NamespaceSeed
    prompt: bytes
    max_tokens: int
    sampling: SamplingParams = SamplingParams()
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    tenant: str = ""
    priority: int = 0
    counted: bool = True
    resumed: bytes = b""

    @cached_property
    def prompt_tokens(self) -> int:
        """Number of tokens in the prompt."""
        return len(self.prompt) // TOKEN_BYTES

    @cached_property
    def resumed_tokens(self) -> int:
        """Number of output tokens that there are when it arrives."""
        return len(self.resumed) // TOKEN_BYTES

    @cached_property
    def final_length(self) -> int:
        """Tokens of prompt and output when it ends at `max_tokens`."""
        return self.prompt_tokens + self.max_tokens
