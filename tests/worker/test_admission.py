"""What a worker takes, what it refuses and with which status, and what it resolves."""

import math

import grpc
import pytest
from radixgate.namespace import Namespace
from radixgate.prefix import pack_tokens
from radixgate.refused import RefusedError
from radixgate.v1.generate_pb2 import GenerateRequest, Sampling, Scope, Stopping, TokenIds

from worker.engine.request import SamplingParams
from worker.serve.admission import Served
from worker.serve.scopes import Scopes

SERVED = Served(
    model="tiny",
    scopes=Scopes("f"),
    vocab_size=100,
    max_context=64,
    kv_tokens={"": 32, "t": 32, "small": 3}.__getitem__,
    eos_token_ids=frozenset([2]),
)
PROMPT = pack_tokens([5, 6, 7])


@pytest.mark.parametrize(
    ("message", "code", "says"),
    [
        (GenerateRequest(), "INVALID_ARGUMENT", "missing"),
        (GenerateRequest(packed=b""), "INVALID_ARGUMENT", "empty"),
        (GenerateRequest(tokens=TokenIds()), "INVALID_ARGUMENT", "empty"),
        (GenerateRequest(packed=b"123"), "INVALID_ARGUMENT", "multiple of 4"),
        (GenerateRequest(text="hi"), "INVALID_ARGUMENT", "send text to a gateway"),
        (GenerateRequest(tokens=TokenIds(ids=[1, 100])), "INVALID_ARGUMENT", "token 1 is 100"),
        (GenerateRequest(tokens=TokenIds(ids=[1] * 64)), "INVALID_ARGUMENT", "context of 64"),
        (GenerateRequest(tokens=TokenIds(ids=[1] * 32)), "FAILED_PRECONDITION", "of 32 tokens"),
        (
            GenerateRequest(packed=PROMPT, scope=Scope(tenant="small")),
            "FAILED_PRECONDITION",
            "memory of 3 tokens",
        ),
        (GenerateRequest(packed=PROMPT, model="big"), "NOT_FOUND", "serves 'tiny'"),
        (GenerateRequest(packed=PROMPT, scope=Scope(adapter="x")), "NOT_FOUND", "adapter 'x'"),
        (
            GenerateRequest(packed=PROMPT, sampling=Sampling(temperature=math.nan)),
            "INVALID_ARGUMENT",
            "sampling.temperature",
        ),
        (
            GenerateRequest(packed=PROMPT, stopping=Stopping(stop_token_ids=[100])),
            "INVALID_ARGUMENT",
            "stop_token_ids: 100",
        ),
    ],
)
def test_refusals(message: GenerateRequest, code: str, says: str) -> None:
    with pytest.raises(RefusedError, match=says) as refused:
        SERVED.admit(message)
    assert refused.value.code is grpc.StatusCode[code]


@pytest.mark.parametrize(
    ("packed", "resumed", "most", "code", "says"),
    [
        ([5, 6, 7], 3, None, "INVALID_ARGUMENT", "resumed_tokens: 3 of 3 prompt tokens"),
        ([5, 6, 7], 4, None, "INVALID_ARGUMENT", "resumed_tokens: 4 of 3 prompt tokens"),
        ([5, 6, 7], 2, 1, "INVALID_ARGUMENT", "resumed_tokens: 2, more than stopping.max_tokens"),
        ([5, 6, 100], 2, None, "INVALID_ARGUMENT", "token 2 is 100"),
        ([5] * 33, 30, None, "FAILED_PRECONDITION", "the 30 tokens of output .* of 32 tokens"),
    ],
)
def test_output_that_cannot_be_resumed(
    packed: list[int], resumed: int, most: int | None, code: str, says: str
) -> None:
    message = GenerateRequest(
        packed=pack_tokens(packed), resumed_tokens=resumed, stopping=Stopping(max_tokens=most)
    )
    with pytest.raises(RefusedError, match=says) as refused:
        SERVED.admit(message)
    assert refused.value.code is grpc.StatusCode[code]


def test_what_is_resumed_is_output_and_no_prompt() -> None:
    message = GenerateRequest(packed=pack_tokens([5, 6, 7]), resumed_tokens=2)
    asked = SERVED.admit(message)
    assert (asked.prompt, asked.resumed) == (pack_tokens([5]), pack_tokens([6, 7]))
    assert (asked.prompt_tokens, asked.resumed_tokens, asked.max_tokens) == (1, 2, 31)
    assert not asked.counted
    message.stopping.max_tokens = 2
    assert SERVED.admit(message).final_length == 3
    # All the memory is full: there is room for the end alone.
    message.packed = pack_tokens([5] * 32)
    message.resumed_tokens, message.stopping.max_tokens = 31, 31
    assert SERVED.admit(message).max_tokens == 31


def test_defaults_are_resolved() -> None:
    asked = SERVED.admit(GenerateRequest(packed=PROMPT))
    assert asked.prompt == PROMPT
    assert asked.max_tokens == 32 - 3
    seed = asked.sampling.seed
    assert asked.sampling == SamplingParams(temperature=1.0, top_p=1.0, top_k=0, seed=seed)
    assert asked.priority == 0
    assert asked.stop_token_ids == {2}
    assert asked.namespace == Namespace("f").seed()


def test_a_seed_is_drawn_unless_it_is_set() -> None:
    drawn = {SERVED.admit(GenerateRequest(packed=PROMPT)).sampling.seed for _ in range(3)}
    assert len(drawn) == 3
    zero = GenerateRequest(packed=PROMPT, sampling=Sampling(seed=0))
    assert SERVED.admit(zero).sampling.seed == 0


def test_what_is_asked_is_kept_and_clamped() -> None:
    message = GenerateRequest(
        request_id="r",
        model="tiny",
        tokens=TokenIds(ids=[5, 6, 7]),
        scope=Scope(tenant="t", salt="s"),
        sampling=Sampling(temperature=0, top_k=3, seed=9),
        stopping=Stopping(max_tokens=1000, stop=["a"], stop_token_ids=[9], ignore_eos=True),
        priority=-4,
    )
    asked = SERVED.admit(message)
    assert asked.prompt == PROMPT
    assert asked.final_length == 32
    assert (asked.priority, asked.tenant) == (-4, "t")
    assert (asked.sampling.temperature, asked.sampling.top_k, asked.sampling.seed) == (0, 3, 9)
    assert (asked.stop, asked.stop_token_ids) == (("a",), {9})
    assert asked.namespace == Namespace("f", tenant="t", salt="s").seed()
