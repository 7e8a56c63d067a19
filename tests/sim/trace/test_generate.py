"""Generated traces: what each promises of its prompts, the same for the same seed."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.request import Request, Trace
from sim.trace.generate.spec import GENERATORS, generated, is_generated
from sim.trace.row import TraceError
from tests.sim.trace.files import alike


def distinct(trace: Trace) -> float:
    """Blocks that are there once in a trace, as a share of all."""
    found = Counter(id_ for each in trace.requests for id_ in each.prompt.ids)
    return sum(count == 1 for count in found.values()) / sum(found.values())


def known(request: Request) -> list[int]:
    """The blocks of prompt and answer."""
    assert request.output
    return [*request.prompt.ids, *request.output.ids]


@given(st.sampled_from(sorted(GENERATORS)), st.integers(1, 60), st.integers(0, 9))
def test_a_trace_is_one(name: str, requests: int, seed: int) -> None:
    trace = generated(f"{name}:requests={requests},seed={seed}")
    assert [each.number for each in trace.requests] == list(range(requests))
    assert trace.requests[0].at == 0.0
    for one, other in pairwise(trace.requests):
        assert one.at <= other.at
    for each in trace.requests:
        assert each.prompt.tokens == 16 * len(each.prompt.ids) > 0
        assert each.output
        assert each.output.tokens == each.output_tokens > 0
        if each.after is not None:
            before = trace.requests[each.after]
            assert each.after < each.number
            assert each.session == before.session
            assert each.at == pytest.approx(before.at + each.think)
    assert generated(f"{name}:requests={requests},seed={seed}").requests == trace.requests
    if requests > 5:
        assert generated(f"{name}:requests={requests},seed={seed + 1}").requests != trace.requests


def test_unique_prompts_have_nothing_in_common() -> None:
    assert distinct(generated("unique:requests=50")) == 1.0


def test_lengths_and_rates_are_as_asked_on_average() -> None:
    trace = generated("unique:requests=3000,rate=8,prompt=400,output=90")
    assert sum(each.prompt.tokens for each in trace.requests) / 3000 == pytest.approx(400, rel=0.05)
    assert sum(each.output_tokens for each in trace.requests) / 3000 == pytest.approx(90, rel=0.05)
    assert 3000 / trace.requests[-1].at == pytest.approx(8, rel=0.1)


def test_system_prompts_are_shared_and_some_are_popular() -> None:
    trace = generated("shared:requests=400,systems=4,system=160")
    beginnings = Counter(tuple(each.prompt.ids[:10]) for each in trace.requests)
    assert len(beginnings) == 4
    counts = [count for _, count in beginnings.most_common()]
    assert counts[0] > 2.5 * counts[3]
    assert len({id_ for each in trace.requests for id_ in each.prompt.ids[10:]}) == sum(
        len(each.prompt.ids) - 10 for each in trace.requests
    )


def test_documents_stand_in_any_order_and_once_in_a_prompt() -> None:
    trace = generated("rag:requests=300,documents=3,picked=2,system=16,document=16,question=16")
    orders = Counter(tuple(each.prompt.ids[1:-1])[:9] for each in trace.requests)
    assert len(orders) >= 6
    for each in trace.requests:
        assert len(set(each.prompt.ids)) == len(each.prompt.ids)
    everything = generated("rag:requests=5,documents=2,picked=2")
    assert len(everything.requests) == 5


def test_a_turn_has_all_that_was_said_before() -> None:
    trace = generated("chat:requests=300,turns=4")
    followed = 0
    for each in trace.requests:
        if each.after is not None:
            before = known(trace.requests[each.after])
            assert alike(before, each.prompt.ids) == len(before) < len(each.prompt.ids)
            followed += 1
    assert followed / 300 == pytest.approx(3 / 4, abs=0.1)
    assert {each.after for each in generated("chat:requests=20,turns=1").requests} == {None}


def test_agents_split_with_all_that_they_know_and_gather_the_results() -> None:
    trace = generated("agents:requests=600,branch=0.3,branches=3,calls=4,rate=50")
    children = Counter(each.after for each in trace.requests if each.after is not None)
    split = [number for number, count in children.items() if count > 1]
    assert split
    for number in split:
        before = known(trace.requests[number])
        siblings = [each for each in trace.requests if each.after == number]
        assert len(siblings) <= 3
        for each in siblings:
            assert alike(before, each.prompt.ids) == len(before)
    assert max(children.values()) == 3
    alone = Counter(each.after for each in generated("agents:branch=0,requests=200").requests)
    del alone[None]
    assert max(alone.values()) == 1


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("chats:rate=5", "no generator 'chats'; there are shared, chat, rag, agents, unique"),
        ("chat:rats=5", "chat has no 'rats'; it has requests, rate, seed, turns, think"),
        ("chat:rate=fast", "rate must be a number, and is 'fast'"),
        ("chat:rate", "rate must be a number, and is ''"),
        ("chat:requests=2.5", r"requests must be an integer, and is '2\.5'"),
        ("chat:requests=0", "requests must be 1 to 16,777,216, and is 0"),
        ("chat:rate=0", r"rate must be more than 0, and is 0\.0"),
        ("chat:rate=nan", "rate must be more than 0, and is nan"),
        ("chat:think=-1", r"think must be 0 or more, and is -1\.0"),
        ("chat:turns=0.5", r"turns must be 1 or more, and is 0\.5"),
        ("agents:calls=0", r"calls must be 1 or more, and is 0\.0"),
        ("agents:branch=2", r"branch must be 0 to 1, a probability, and is 2\.0"),
        ("rag:picked=5,documents=2", "picked must be at most documents, 2, and is 5"),
        ("chat:rate=5,rate=6", "rate is named twice"),
        ("rag:document=99999999999", "document must be 1 to 16,777,216"),
    ],
)
def test_what_cannot_be_generated_is_told(spec: str, told: str) -> None:
    with pytest.raises(TraceError, match=f"^'{spec}': {told}"):
        generated(spec)


def test_files_are_not_taken_for_generators() -> None:
    assert is_generated("chat")
    assert is_generated("chat:seed=2")
    assert not is_generated("chat.jsonl.gz")
    assert not is_generated("./traces/rag")
