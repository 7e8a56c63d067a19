"""Turns among tenants: by weight while they wait, and with no credit for not waiting."""

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from gateway.route.fairness import ABSENT_KEPT, FairQueue
from gateway.route.ticket import Ticket
from tests.route.tickets import ticket

WEIGHTS = {"a": 3.0, "b": 1.0, "c": 0.5}


def weight(tenant: str) -> float:
    return WEIGHTS.get(tenant, 1.0)


def drain(queue: FairQueue) -> list[Ticket]:
    order = []
    while queue:
        order.append(queue.first())
        queue.serve(order[-1])
    return order


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 1000)), min_size=1))
def test_whoever_waits_all_the_time_gets_by_weight(arrivals: list[tuple[str, int]]) -> None:
    """The bound of start-time fair queueing, in every interval in which two tenants wait."""
    queue = FairQueue(weight)
    left: Counter[str] = Counter()
    largest: defaultdict[str, int] = defaultdict(int)
    for tenant, tokens in arrivals:
        queue.add(ticket(tenant, tokens))
        left[tenant] += 1
        largest[tenant] = max(largest[tenant], tokens)
    served: Counter[str] = Counter()
    for taken in drain(queue):
        served[taken.tenant] += taken.tokens
        left[taken.tenant] -= 1
        waiting = [tenant for tenant in WEIGHTS if left[tenant]]
        shares = [served[tenant] / WEIGHTS[tenant] for tenant in waiting]
        bound = sum(sorted(largest[t] / WEIGHTS[t] for t in waiting)[-2:])
        if len(waiting) > 1:
            assert max(shares) - min(shares) <= bound + 1e-6


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 1000)), min_size=1))
def test_order_last_and_ahead_agree_with_the_turns(arrivals: list[tuple[str, int]]) -> None:
    queue = FairQueue(weight)
    made = []
    for at, (tenant, tokens) in enumerate(arrivals):
        made.append(ticket(tenant, tokens, arrived=float(at)))
        ahead = queue.ahead(tenant)
        queue.add(made[-1])
        # Who comes last of all that start equally early is counted behind them.
        alone = FairQueue(weight)
        for waiting in made:
            alone.add(waiting)
        assert drain(alone).index(made[-1]) <= ahead
    assert len(queue) == len(made)
    last = queue.last()
    order = drain(queue)
    assert order[-1] is last
    assert sorted(map(id, order)) == sorted(map(id, made))
    for tenant in WEIGHTS:
        mine = [each for each in order if each.tenant == tenant]
        assert mine == [each for each in made if each.tenant == tenant]


def test_a_tenant_that_comes_later_starts_where_the_others_are() -> None:
    queue = FairQueue(weight)
    for _ in range(20):
        queue.add(ticket("x", 100))
    for _ in range(10):
        queue.serve(queue.first())
    for _ in range(5):
        queue.add(ticket("y", 100))
    tenants = [taken.tenant for taken in drain(queue)]
    assert tenants[:10].count("y") == 5
    assert "yy" not in "".join(tenants)


def test_coming_one_at_a_time_gains_nothing() -> None:
    queue = FairQueue(weight)
    for _ in range(40):
        queue.add(ticket("many", 100))
    served: Counter[str] = Counter()
    for _ in range(20):
        queue.add(ticket("one", 200))
        while True:
            taken = queue.first()
            queue.serve(taken)
            served[taken.tenant] += taken.tokens
            if taken.tenant == "one" or not queue:
                break
        if len(queue) < 2:
            break
    assert abs(served["one"] - served["many"]) <= 300


def test_what_is_withdrawn_costs_nothing() -> None:
    queue = FairQueue(weight)
    given_up = [ticket("x", 1000) for _ in range(10)]
    for each in given_up:
        queue.add(each)
    queue.add(ticket("y", 10, arrived=1.0))
    for each in given_up:
        queue.withdraw(each)
    queue.add(ticket("x", 10, arrived=0.5))
    assert [taken.tenant for taken in drain(queue)] == ["x", "y"]


def test_a_turn_out_of_order_is_paid_for() -> None:
    queue = FairQueue(weight)
    tickets = [ticket(tenant, 100) for tenant in "xyxyxyxy"]
    for each in tickets:
        queue.add(each)
    queue.serve(tickets[3])  # of y, and not its turn
    queue.serve(tickets[5])
    assert [taken.tenant for taken in drain(queue)][:3] == ["x", "x", "x"]


def test_only_so_many_absent_tenants_are_remembered() -> None:
    queue = FairQueue(weight)
    queue.add(ticket("stays", arrived=1.0))
    for at in range(ABSENT_KEPT + 10):
        queue.add(ticket(f"tenant {at}"))
        queue.serve(queue.first())
    assert len(queue._absent) <= ABSENT_KEPT


def test_a_turn_out_of_order_does_not_move_where_others_start() -> None:
    queue = FairQueue(weight)
    tickets = [ticket(tenant, 100) for tenant in "xyyyyy"]
    for each in tickets:
        queue.add(each)
    for each in tickets[1:5]:
        queue.serve(each)
    queue.add(ticket("new", 100))
    queue.add(ticket("new", 100))
    assert [taken.tenant for taken in drain(queue)] == ["x", "new", "new", "y"]
