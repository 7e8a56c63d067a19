"""What a worker's load means for the next request there, worked out once for each report. Pure.

A decision asks every worker, and a protobuf message answers slowly.
"""

from typing import NamedTuple

from radixgate.v1.sync_pb2 import Load

PRIOR_ITL_MS = 30.0
# A sequence that runs now is taken to need this many tokens more before it leaves its slot.
PRIOR_REMAINING_TOKENS = 128


class Pressure(NamedTuple):
    """What a worker has not measured yet is 0.

    Args:
        tokens_per_ms: of prefill.
        backlog_tokens: to be computed before the next request.
        slot_wait_ms: until everyone waiting and then the next request has a slot; 0 while one is
            free.
        occupied: share of the slots that are taken.
        free_blocks: of KV memory.
        regret_ms_per_block: what evicting a block costs.
    """

    tokens_per_ms: float
    backlog_tokens: int
    slot_wait_ms: float
    occupied: float
    free_blocks: int
    regret_ms_per_block: float

    @classmethod
    def of(cls, load: Load) -> "Pressure":
        """As `load` reports it."""
        return cls(
            tokens_per_ms=load.prefill_tokens_per_second / 1000,
            backlog_tokens=load.backlog_tokens,
            slot_wait_ms=_slot_wait_ms(load),
            occupied=load.running / load.max_running if load.max_running else 0.0,
            free_blocks=load.free_blocks,
            regret_ms_per_block=load.regret_ms_per_block,
        )


def _slot_wait_ms(load: Load) -> float:
    """With R sequences running that need L tokens each, one leaves every L · ITL / R."""
    if load.running + load.waiting < load.max_running or not load.running:
        return 0.0
    leaves_every_ms = PRIOR_REMAINING_TOKENS * (load.itl_ms or PRIOR_ITL_MS) / load.running
    return (load.running + load.waiting - load.max_running + 1) * leaves_every_ms
