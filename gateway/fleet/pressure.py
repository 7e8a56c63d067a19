"""What a worker's load means for the next request there, worked out once for each report. Pure.

A decision asks every worker, and a protobuf message answers slowly.
"""

from dataclasses import dataclass

from radixgate.v1.sync_pb2 import Load

PRIOR_ITL_MS = 30.0
# Beyond its slots a worker is to have one request for so many slots, and at least one.
SPARE_SHARE = 8
# Who waits where less than this part of the KV memory is free or evictable waits for memory; where
# there is more, for no more than the next step.
SCARCE_SHARE = 4
# A sequence that runs now is taken to need this many tokens more before it leaves its slot.
PRIOR_REMAINING_TOKENS = 128


@dataclass(slots=True)
class Pressure:
    """What a worker has not measured yet is 0.

    Args:
        work_per_ms: of prefill, see `radixgate.work`.
        backlog_work: to be done before the next request.
        attention_tokens: of the model.
        slot_wait_ms: until everyone waiting and then the next request has a slot; 0 while one is
            free.
        running: sequences.
        itl_ms: mean time between two of their tokens.
        prefills: whether it has prompts to compute.
        free_blocks: of KV memory.
        regret_ms_per_block: what evicting a block costs.
        places: for requests that the worker should have beside those it has; below 0 when it has
            too many.
    """

    work_per_ms: float
    backlog_work: float
    attention_tokens: int
    slot_wait_ms: float
    running: int
    itl_ms: float
    prefills: bool
    free_blocks: int
    regret_ms_per_block: float
    places: int

    @classmethod
    def of(cls, load: Load) -> "Pressure":
        """As `load` reports it. Where it tells of tokens alone, each is a work of 1."""
        weighed = load.prefill_work_per_second > 0
        return cls(
            work_per_ms=(load.prefill_work_per_second or load.prefill_tokens_per_second) / 1000,
            backlog_work=load.backlog_work if weighed else load.backlog_tokens,
            attention_tokens=load.attention_tokens if weighed else 0,
            slot_wait_ms=_slot_wait_ms(load),
            running=load.running,
            itl_ms=load.itl_ms,
            # NOTE: each sequence that generates has one token to compute.
            prefills=load.backlog_tokens > load.running,
            free_blocks=load.free_blocks,
            regret_ms_per_block=load.regret_ms_per_block,
            places=_places(load),
        )


def _slot_wait_ms(load: Load) -> float:
    """With R sequences running that need L tokens each, one leaves every L · ITL / R."""
    if load.running + load.waiting < load.max_running or not load.running:
        return 0.0
    leaves_every_ms = PRIOR_REMAINING_TOKENS * (load.itl_ms or PRIOR_ITL_MS) / load.running
    return (load.running + load.waiting - load.max_running + 1) * leaves_every_ms


def _places(load: Load) -> int:
    spare = max(1, load.max_running // SPARE_SHARE)
    available = load.free_blocks + load.cached_blocks
    if load.waiting and available * SCARCE_SHARE < load.total_blocks:
        # What it runs is all that it can run.
        return spare - load.waiting
    return load.max_running + spare - load.running - load.waiting
