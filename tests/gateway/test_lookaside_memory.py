"""How long a routed request is remembered, and what its end counts for, on a clock of the test."""

from types import SimpleNamespace
from typing import cast

import pytest
from radixgate.namespace import Namespace
from radixgate.refused import RefusedError
from radixgate.v1.gateway_pb2 import (
    FINISH_OUTCOME_COUNTED,
    FINISH_OUTCOME_ENDED_BEFORE,
    FINISH_OUTCOME_PASSED_ON,
    FinishRequest,
    RouteResponse,
)
from radixgate.v1.generate_pb2 import GenerateRequest

from gateway.fleet.fleet import Fleet
from gateway.route.breaker import Breakers
from gateway.route.record import Records
from gateway.route.room import Room
from gateway.route.router import RESERVATION_LIFETIME, Prompt
from gateway.route.routers import Routers
from gateway.scale.tally import Tally
from gateway.serve import lookaside
from gateway.serve.choose import Chooser
from gateway.serve.lookaside import REMEMBERED_SECONDS, Lookaside, ReservationId
from gateway.serve.metrics import Metrics
from gateway.serve.models import Models
from gateway.serve.outcomes import Outcomes
from gateway.serve.prepare import Prepared
from gateway.serve.queue import Pool, QueueConfig
from gateway.serve.queues import Queues
from gateway.summary.events import Registered, Registration
from gateway.summary.outbox import Outbox, Outboxes
from gateway.summary.pool import Pool as SummaryPool
from tests.gateway.doubles import make_card
from tests.gateway.harness import PROMPT

MODEL = "a-model-with-dashes"
CARD = make_card(MODEL)


class Scene:
    """A gateway's routing, and one worker that holds nothing."""

    def __init__(self) -> None:
        self.now = 0.0
        fleet = Fleet(lease=1e9, clock=lambda: self.now)
        registration = Registration("w", 1, "w:1", MODEL, CARD.fingerprint, 16, 64, 1000)
        fleet.observe(MODEL, Registered(registration, 0))
        fleet.admit(registration, CARD)
        self.routers = Routers(Outboxes("g").of)
        self.metrics = Metrics()

        def tally_of(_: str) -> Tally:
            return Tally("g")

        breakers = Breakers(lambda: 0.0)
        self.chooser = Chooser(fleet, self.routers.of, breakers, self.metrics, lambda: self.now)
        queues = Queues(
            QueueConfig(),
            Models(fleet, lambda: [MODEL], {}),
            Pool(lambda _: Room(1, 1e9), self.chooser.estimates),
            metrics=self.metrics,
            tally_of=tally_of,
            clock=lambda: self.now,
        )
        self.queue = queues.of(MODEL)
        self.lookaside = Lookaside(
            "g",
            fleet=fleet,
            chooser=self.chooser,
            router_of=self.routers.of,
            queues=queues,
            breakers=breakers,
            outcomes=Outcomes(
                Records(),
                fleet,
                self.routers.of,
                metrics=self.metrics,
                tally_of=tally_of,
                clock=lambda: self.now,
            ),
            metrics=self.metrics,
            find_pool=lambda _: None,
            clock=lambda: self.now,
        )
        seed = Namespace(CARD.fingerprint).seed()
        self.prepared = Prepared(GenerateRequest(packed=PROMPT), Prompt(PROMPT, 64, seed), MODEL)

    def route(self) -> RouteResponse:
        return self.lookaside.route(self.prepared, [])

    def finish(self, routed: RouteResponse, cached_tokens: int) -> int:
        request = FinishRequest(reservation=routed.reservation, cached_tokens=cached_tokens)
        return self.lookaside.finish(request).outcome

    def expected(self) -> int:
        return self.chooser.estimates(self.prepared)[0].expected_tokens

    def sample(self, name: str, **labels: str) -> float | None:
        labels["model"] = MODEL
        return self.metrics.registry.get_sample_value(f"radixgate_gateway_{name}_total", labels)


def test_a_reservation_ends_while_its_request_is_remembered() -> None:
    scene = Scene()
    routed = scene.route()
    assert scene.expected() == 640
    scene.now = RESERVATION_LIFETIME + 1
    assert scene.expected() == 0
    (remembered,) = scene.lookaside._routed.values()
    assert remembered.reservation() is None, "its boundaries are kept for longer than it lives"
    scene.now = REMEMBERED_SECONDS
    assert scene.finish(routed, 64) == FINISH_OUTCOME_COUNTED
    assert scene.sample("prompt_tokens", fate="cached") == 64
    assert scene.sample("prompt_tokens", fate="new") == 576
    assert scene.sample("routed", end="finished") == 1


def test_what_was_expected_is_what_was_predicted() -> None:
    scene = Scene()
    first, second = scene.route(), scene.route()
    assert (first.matched_tokens, second.matched_tokens) == (0, 640)
    scene.finish(second, 640)
    assert scene.sample("predicted_cached_tokens") == 640
    assert scene.sample("prompt_tokens", fate="cached") == 640


def test_good_ends_tell_how_long_requests_take() -> None:
    scene = Scene()
    routed = [scene.route() for _ in range(2)]
    scene.now = 8.0
    failed = FinishRequest(reservation=routed[0].reservation, status=14)
    assert scene.lookaside.finish(failed).outcome == FINISH_OUTCOME_COUNTED
    assert scene.queue._turns._queue.service.seconds == 0
    scene.finish(routed[1], 0)
    assert scene.queue._turns._queue.service.seconds == 8.0


def test_who_is_silent_for_too_long_is_forgotten_and_counted() -> None:
    scene = Scene()
    routed = scene.route()
    scene.now = REMEMBERED_SECONDS + 1
    assert scene.finish(routed, 64) == FINISH_OUTCOME_ENDED_BEFORE
    assert scene.sample("routed", end="silent") == 1
    assert scene.sample("prompt_tokens", fate="new") is None


def test_no_more_are_remembered_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookaside, "REMEMBERED_LIMIT", 2)
    scene = Scene()
    routed = [scene.route() for _ in range(3)]
    outcomes = [scene.finish(each, 0) for each in routed]
    assert outcomes == [FINISH_OUTCOME_ENDED_BEFORE, *[FINISH_OUTCOME_COUNTED] * 2]


def test_ids_read_back() -> None:
    id_ = ReservationId("g", 7, MODEL)
    assert ReservationId.parse(str(id_)) == id_


def test_what_is_passed_on_is_short() -> None:
    scene = Scene()
    outbox = Outbox("g")
    other = SimpleNamespace(problem="", outbox=outbox)
    scene.lookaside._find_pool = lambda _: cast(SummaryPool, other)
    for gateway, number in (("x" * 10_000, "1"), ("x", "9" * 5_000)):
        with pytest.raises(RefusedError, match="names none") as refused:
            scene.lookaside.finish(FinishRequest(reservation=f"{gateway}-{number}-{MODEL}"))
        assert len(refused.value.message) < 300
    unknown = b"\xfa\x7f\x90\x4e" + bytes(10_000)  # Field 2047, of so many bytes.
    told = FinishRequest(reservation=f"x-1-{MODEL}", message="why " * 10_000)
    request = FinishRequest.FromString(told.SerializeToString() + unknown)
    assert scene.lookaside.finish(request).outcome == FINISH_OUTCOME_PASSED_ON
    announcement = outbox.take()
    assert announcement
    assert announcement.ByteSize() < 300
