"""The rest of a request: for any messages that have passed, its prompt and output so far."""

from hypothesis import given
from hypothesis import strategies as st
from radixgate.prefix import pack_tokens, unpack_tokens
from radixgate.v1.generate_pb2 import (
    FINISH_REASON_STOP,
    Finished,
    GenerateRequest,
    GenerateResponse,
    Misses,
    Sampling,
    Stopping,
    Tokens,
)

from gateway.serve.continuation import Beginning, Continuation

REQUEST = GenerateRequest(
    request_id="r",
    model="m",
    packed=pack_tokens([1, 2, 3]),
    sampling=Sampling(temperature=1, seed=7),
    stopping=Stopping(max_tokens=900, stop=["x"]),
    priority=2,
)
LATER = b"\xa2\x38\x02ok"  # field 900, of a later version

messages = st.lists(
    st.tuples(st.lists(st.integers(0, 2**32 - 1), max_size=4), st.text(max_size=3), st.booleans())
)


@given(messages)
def test_the_rest_is_asked_with_all_that_has_passed(
    passed: list[tuple[list[int], str, bool]],
) -> None:
    continuation = Continuation(REQUEST)
    for ids, text, later in passed:
        tokens = Tokens.FromString(
            Tokens(ids=ids, text=text).SerializeToString() + (LATER if later else b"")
        )
        before = continuation.progress
        continuation.passed(GenerateResponse(tokens=tokens).SerializeToString())
        assert continuation.progress > before
    output = [token for ids, _, _ in passed for token in ids]
    rest = continuation.request()
    assert unpack_tokens(rest.packed) == [1, 2, 3, *output]
    assert rest.resumed_tokens == len(output)
    rest.packed, rest.resumed_tokens = REQUEST.packed, 0
    assert rest == REQUEST
    assert not REQUEST.resumed_tokens


def test_the_end_is_that_of_the_whole() -> None:
    last = Finished(
        reason=FINISH_REASON_STOP,
        stop="x",
        prompt_tokens=3,
        cached_tokens=1,
        output_tokens=20,
        queue_seconds=0.1,
        ttft_seconds=0.2,
        total_seconds=0.3,
        preemptions=4,
        misses=Misses(new_tokens=2),
    )
    message = GenerateResponse(finished=last).SerializeToString()
    beginning = Beginning(asked_at=10.0, scheduled_at=11.0, first_token_at=12.0, cached_tokens=2)
    whole = Continuation(REQUEST).finished(message, beginning, now=20.0, migrations=2)
    assert GenerateResponse.FromString(whole).finished == Finished(
        reason=FINISH_REASON_STOP,
        stop="x",
        prompt_tokens=3,
        cached_tokens=2,
        output_tokens=20,
        queue_seconds=1.0,
        ttft_seconds=2.0,
        total_seconds=10.0,
        preemptions=4,
        migrations=2,
    )
