"""Which cached prefixes are found most often lately: what is worth having elsewhere.

A node is found no more often than the one above it, so a search from the roots that always goes on
at the hottest node in reach meets the nodes in the order of their heat, and ends at its limit.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from radixgate.namespace import NamespaceSeed

from worker.kv.node import Node


class HotPrefix(NamedTuple):
    """A cached prefix that was found lately.

    Args:
        seed: of its namespace.
        heat: see `Node.heat`.
        extends: which prefix of the list, counted from 1, it begins with; 0: none.
        edge: its packed tokens after that one, whole blocks.
    """

    seed: NamespaceSeed
    heat: float
    extends: int
    edge: bytes


def hottest(roots: Iterable[Node], request: int, most_blocks: int) -> list[HotPrefix]:
    """The hottest prefixes after `request`, hottest first, each after the one that it extends.

    Their edges have `most_blocks` together at most; the last one may be cut for that.
    """
    found: list[HotPrefix] = []
    # NOTE: the number keeps nodes of one heat in the order in which they were reached.
    reached: list[tuple[float, int, int, Node]] = []
    numbers = count()

    def reach_below(node: Node, extends: int) -> None:
        for child in node.children.values():
            if heat := child.heat_at(request):
                heappush(reached, (-heat, next(numbers), extends, child))

    for root in roots:
        reach_below(root, 0)
    while reached and most_blocks > 0:
        heat, _, extends, node = heappop(reached)
        taken = min(most_blocks, len(node.blocks))
        most_blocks -= taken
        edge = bytes(node.edge[: taken * (len(node.edge) // len(node.blocks))])
        found.append(HotPrefix(node.seed, -heat, extends, edge))
        reach_below(node, len(found))
    return found
