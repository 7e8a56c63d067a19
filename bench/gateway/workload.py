"""What clients of the benchmark ask for, and what the worker double is said to hold of it.

A prompt of token ids begins with `SHARED` tokens that the worker holds and goes on with its own. A
prompt of text has about as many tokens, all its own, so that no memory of tokenized text helps.
"""

import random
from typing import Final

from radixgate.prefix import TOKEN_BYTES, pack_tokens
from radixgate.v1.gateway_pb2 import RouteRequest
from radixgate.v1.generate_pb2 import GenerateRequest, Stopping

STRIDE: Final = 64
SHARED: Final = pack_tokens(range(1_000, 1_512))
PROMPT_TOKENS: Final = 1_000
VOCABULARY: Final = 49_152
WORDS: Final = ("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child")
"""A token each, with the space before."""


def tokens(rng: random.Random, output: int) -> GenerateRequest:
    """A request for `output` messages, with token ids."""
    own = PROMPT_TOKENS - len(SHARED) // TOKEN_BYTES
    ids = pack_tokens(rng.choices(range(VOCABULARY), k=own))
    return GenerateRequest(packed=SHARED + ids, stopping=Stopping(max_tokens=output))


def text(rng: random.Random, output: int) -> GenerateRequest:
    """A request for `output` messages, with text."""
    words = " ".join(rng.choices(WORDS, k=PROMPT_TOKENS))
    return GenerateRequest(text=words, stopping=Stopping(max_tokens=output))


def route(rng: random.Random) -> RouteRequest:
    """A request for a decision."""
    return RouteRequest(generate=tokens(rng, 1))
