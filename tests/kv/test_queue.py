"""The eviction queue against a list that is sorted anew each time."""

from hypothesis import given
from hypothesis import strategies as st
from radixgate.namespace import NamespaceSeed

from worker.kv.account import Account
from worker.kv.node import Node
from worker.kv.queue import LeafQueue


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 20)), max_size=60))
def test_the_first_is_the_one_left_longest_ago(steps: list[tuple[int, int]]) -> None:
    queue, account = LeafQueue(), Account(0, 1, [])
    nodes = [Node(NamespaceSeed(0), account) for _ in range(8)]
    inside: list[Node] = []
    for number, left in steps:
        node = nodes[number]
        if node in inside:
            queue.discard(node)
            inside.remove(node)
        else:
            node.left = left
            queue.push(node)
            inside.append(node)
        assert len(queue) == len(inside)
        assert queue.first is min(inside, key=lambda each: each.left, default=None)
        assert len(queue._heap) <= 2 * len(inside) + 1, "dead entries pile up"
