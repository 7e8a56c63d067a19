"""What people read of a decision."""

from radixgate.namespace import NamespaceSeed
from radixgate.prefix import pack_tokens
from radixgate.v1.gateway_pb2 import TRUST_SUSPECT

from gateway.fleet.trust import IN_SYNC, Belief, Trust
from gateway.fleet.worker import FleetWorker
from gateway.route.cost import COST, CostTerms
from gateway.route.router import Estimate, Prompt
from gateway.serve import views
from gateway.summary.events import Registration

PROMPT = Prompt(pack_tokens(range(640)), 64, NamespaceSeed(0))


IN_DOUBT = Belief(Trust.SUSPECT, "a reason", 0.25)


def estimate(name: str, held: int, wait_ms: float, doubt: Belief | None = None) -> Estimate:
    registration = Registration(name, 1, f"{name}:1", "m", "f", 16, 64, 1000)
    worker = FleetWorker(registration, lease=5.0, heard_at=0.0, deadline=5.0, doubt=doubt)
    terms = CostTerms(wait_ms, 2.0, 3.0, 4.0)
    return Estimate(worker, doubt or IN_SYNC, held, held, terms, COST.weighed_ms(terms, 3), 0)


def test_reasons() -> None:
    a, b, c = estimate("a", 128, 1.0), estimate("b", 0, 21.0), estimate("c", 0, 31.0)
    expected = "a is expected to hold 128 of 640 prompt tokens and to take 10.0 ms"
    assert views.reason([a], [], PROMPT).startswith(expected)
    assert views.reason([a], [], PROMPT).endswith("it is the only candidate.")
    assert views.reason([a, b, c], [], PROMPT).endswith(", 20.0 ms less than b.")
    assert "nearly the same as a" in views.reason([b, a], [], PROMPT)
    failed = views.reason([a], [b, c], PROMPT)
    assert failed.startswith(expected)
    assert failed.endswith("because requests failed there: b, c.")
    doubted = views.reason([b, estimate("a", 128, 31.0, IN_DOUBT)], [], PROMPT)
    assert doubted.startswith("b is expected to hold 0 of 640")
    assert doubted.endswith("a says it holds 128 and is doubted: a reason.")
    assert "hold 32 of 640" in views.reason([estimate("a", 128, 1.0, IN_DOUBT)], [], PROMPT)
    later = estimate("a", 128, 40.0)
    dearer = views.reason([later, b], [], PROMPT)
    assert "19.0 ms more than b, which would compute 128 tokens again" in dearer


def test_a_candidate_shows_all_that_decided() -> None:
    shown = views.candidate(estimate("a", 128, 1.0, IN_DOUBT), circuit="failed", chosen=True)
    assert shown.circuit == "failed"
    terms = (shown.wait_ms, shown.prefill_ms, shown.interfere_ms, shown.evict_ms)
    assert (*terms, shown.total_ms) == (1.0, 2.0, 3.0, 4.0, 10.0)
    assert (shown.worker, shown.address, shown.matched_tokens) == ("a", "a:1", 128)
    assert (shown.trust, shown.trust_reason) == (TRUST_SUSPECT, "a reason")
