"""Measured rates and the engine's load: plain values for reports, metrics and routing."""

from typing import NamedTuple

from worker.kv.manager import KVStats

# A step with fewer prefill tokens says more about the cost of a step than about that of prefill.
MIN_PREFILL_TOKENS = 16
_KEEP = 0.95


class Mean:
    """A ratio of two sums in which each observation weighs a bit less than the one after it."""

    def __init__(self) -> None:
        self._amount = 0.0
        self._per = 0.0

    def observe(self, amount: float, per: float, times: int = 1) -> None:
        """Add an `amount` that came in, or with, `per` units; so many `times` in a row."""
        keep = _KEEP**times
        # The weights of all together: 1 + _KEEP + … + _KEEP ** (times - 1).
        weight = (1 - keep) / (1 - _KEEP)
        self._amount = self._amount * keep + amount * weight
        self._per = self._per * keep + per * weight

    @property
    def value(self) -> float:
        """Amount per unit; 0 until there is something to say."""
        return self._amount / self._per if self._per else 0.0


class Rates:
    """How fast the engine is, learned from its steps.

    The prefill rate is what prompts cost on top: the time that steps which only decode take is not
    counted. So small chunks measure it as well as large ones do, and a worker that is alone with a
    prompt does not look slower than one whose prompts share their steps with answers. It is
    measured in tokens, which says what comes next, and in work (`radixgate.work`), which says
    how fast the worker is, whatever the lengths of the prompts that it happened to get.
    """

    def __init__(self) -> None:
        self._prefill = Mean()
        self._prefill_work = Mean()
        self._decode = Mean()
        self._decode_step = Mean()
        self._gap = Mean()

    def step(
        self, prefill_tokens: int, decode_tokens: int, seconds: float, prefill_work: float
    ) -> None:
        """A step that computed so many tokens of each kind; those of prompts were so much work."""
        if not prefill_tokens:
            self.generations(decode_tokens, seconds)
            return
        if decode_tokens:
            self._decode.observe(decode_tokens, seconds)
        on_top = seconds - self._decode_step.value
        # NOTE: less than nothing is noise, or the mean is one of larger batches than this.
        if prefill_tokens >= MIN_PREFILL_TOKENS and on_top > 0:
            self._prefill.observe(prefill_tokens, on_top)
            self._prefill_work.observe(prefill_work, on_top)

    def generations(self, decode_tokens: int, seconds: float, times: int = 1) -> None:
        """A step without prompts; so many `times` in a row."""
        if decode_tokens:
            self._decode.observe(decode_tokens, seconds, times)
        self._decode_step.observe(seconds, 1, times)

    def gap(self, seconds: float, times: int = 1) -> None:
        """The time between two tokens of one sequence; so many `times` in a row."""
        self._gap.observe(seconds, 1, times)

    @property
    def prefill_tokens_per_second(self) -> float:
        """0 until measured."""
        return self._prefill.value

    @property
    def prefill_work_per_second(self) -> float:
        """0 until measured."""
        return self._prefill_work.value

    def chunk(self, seconds: float) -> int | None:
        """Prompt tokens that take so long, or the fewest that the rate can be measured by.

        None until it is measured.
        """
        rate = self.prefill_tokens_per_second
        return max(MIN_PREFILL_TOKENS, int(rate * seconds)) if rate else None

    @property
    def decode_tokens_per_second(self) -> float:
        """Of all running sequences together; 0 until measured."""
        return self._decode.value

    @property
    def itl_ms(self) -> float:
        """Mean time between the tokens of a running sequence; 0 until measured."""
        return self._gap.value * 1000


class EngineLoad(NamedTuple):
    """The engine between two steps.

    Attributes:
        backlog_tokens: still to be computed for all sequences.
        backlog_work: the same as work, see `radixgate.work`, with `attention_tokens` of the model.
        regret_ms_per_block: mean recompute time that evicting a block has cost; 0 until measured.
    """

    waiting: int
    running: int
    max_running: int
    backlog_tokens: int
    backlog_work: float
    attention_tokens: int
    prefill_tokens_per_second: float
    prefill_work_per_second: float
    decode_tokens_per_second: float
    itl_ms: float
    kv: KVStats

    @property
    def regret_ms_per_block(self) -> float:
        """See the class."""
        if not (self.kv.evicted_blocks and self.prefill_tokens_per_second):
            return 0.0
        seconds = self.kv.recomputed_tokens / self.prefill_tokens_per_second
        return seconds * 1000 / self.kv.evicted_blocks

    @property
    def fragmentation(self) -> float:
        """Share of the room in allocated blocks that holds no token; 0 when none is allocated."""
        allocated = self.kv.allocated_tokens
        return 1 - self.kv.used_tokens / allocated if allocated else 0.0
