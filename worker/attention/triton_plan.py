"""How a step is divided among the programs of a GPU: decided on the host, once for all layers."""

from itertools import pairwise
from math import ceil
from typing import NamedTuple

# Tokens that a program reads at once, and the least that is worth a split.
TILE = 64
_LEAST_SPLIT = 2 * TILE

# Query rows of a task: as in decode, where reading KV takes the time, and as in prefill. Matrix
# units take no fewer than 16.
FEW_ROWS = 16
MANY_ROWS = 64

# So many programs for each processor even out that some take longer.
_PROGRAMS_PER_PROCESSOR = 4


class Task(NamedTuple):
    """Query rows of one sequence over a split of its context; for each KV head alike.

    Row r of a KV head is that of new token r // group and query head r % group.

    Attributes:
        sequence: in the batch.
        first_row: of the rows.
        start: first token of the split.
        stop: the token after its last.
        split: number of the split; those of the same rows follow each other.
        splits: of the same rows.
    """

    sequence: int
    first_row: int
    start: int
    stop: int
    split: int
    splits: int


class Launch(NamedTuple):
    """Tasks of one kernel call, at most `rows` rows each."""

    rows: int
    tasks: list[Task]

    @property
    def is_split(self) -> bool:
        """Whether any rows have several splits, to be merged."""
        return any(task.splits > 1 for task in self.tasks)


def make_plan(
    new: list[int], contexts: list[int], *, kv_heads: int, group: int, processors: int
) -> list[Launch]:
    """Divide a step into tasks of roughly even size, enough of them for the processors.

    Args:
        new: tokens of each sequence, the last of its context.
        contexts: tokens of each sequence, the new ones included.
        kv_heads: of the model.
        group: query heads of each.
        processors: of the GPU.
    """
    strips = [
        (size, sequence, first, context - length + ceil(min(first + size, length * group) / group))
        for sequence, (length, context) in enumerate(zip(new, contexts, strict=True))
        for size in [FEW_ROWS if length * group <= FEW_ROWS else MANY_ROWS]
        for first in range(0, length * group, size)
    ]
    work = kv_heads * sum(tokens for *_, tokens in strips)
    longest = max(_LEAST_SPLIT, ceil(work / (processors * _PROGRAMS_PER_PROCESSOR)))
    launches = {size: Launch(size, []) for size in (FEW_ROWS, MANY_ROWS)}
    for size, sequence, first, tokens in strips:
        each = ceil(tokens / ceil(tokens / longest) / TILE) * TILE
        bounds = [*range(0, tokens, each), tokens]
        launches[size].tasks.extend(
            Task(sequence, first, start, stop, split, len(bounds) - 1)
            for split, (start, stop) in enumerate(pairwise(bounds))
        )
    return [launch for launch in launches.values() if launch.tasks]
