"""The engine's load, from the parts that know of it. Pure."""

from collections.abc import Iterable

from worker.engine.scheduler import Scheduler
from worker.engine.sequence import Sequence, backlog
from worker.engine.stats import EngineLoad, Rates
from worker.kv.manager import KVStats


def engine_load(
    scheduler: Scheduler,
    sequences: Iterable[Sequence],
    rates: Rates,
    kv: KVStats,
    *,
    max_running: int,
    attention_tokens: int,
) -> EngineLoad:
    """What is reported of an engine.

    Args:
        scheduler: of its sequences.
        sequences: all of them, waiting or running.
        rates: measured so far.
        kv: what its memory holds.
        max_running: as in `Scheduler`.
        attention_tokens: of the model, see `radixgate.work`.
    """
    pending = backlog(sequences, attention_tokens)
    return EngineLoad(
        waiting=len(scheduler.waiting),
        running=len(scheduler.running),
        max_running=max_running,
        backlog_tokens=pending.tokens,
        backlog_work=pending.work,
        attention_tokens=attention_tokens,
        prefill_tokens_per_second=rates.prefill_tokens_per_second,
        prefill_work_per_second=rates.prefill_work_per_second,
        decode_tokens_per_second=rates.decode_tokens_per_second,
        itl_ms=rates.itl_ms,
        kv=kv,
    )
