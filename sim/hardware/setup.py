"""What one simulated worker is: its memory, its limits, and how fast it is."""

from dataclasses import dataclass

from sim.hardware.step_time import StepTime
from worker.kv.policy import DEFAULT_EVICTION


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """Args:
    name: for people.
    num_blocks: of KV memory.
    step_time: how long its steps take.
    max_running: sequences that hold blocks at once.
    token_budget: tokens of one step.
    chunk_seconds: by so much at most the prompts in one step delay its generations.
    block_size: tokens in a block.
    eviction: policy, by its name in `worker.kv.policy.POLICIES`.
    gpus: that it takes.
    request_seconds: of a request beside waiting and its steps, from its sender to the first token,
        by way of the gateway if that was measured.
    """

    name: str
    num_blocks: int
    step_time: StepTime
    max_running: int = 256
    token_budget: int = 8192
    chunk_seconds: float = 0.2
    block_size: int = 16
    eviction: str = DEFAULT_EVICTION
    gpus: int = 1
    request_seconds: float = 0.0

    @property
    def attention_tokens(self) -> int:
        """Of its model, see `radixgate.work`; 0 when context costs nothing."""
        time = self.step_time
        return int(time.prompt_token / time.pair) if time.pair else 0

    @property
    def kv_tokens(self) -> int:
        """Tokens that its KV memory holds."""
        return self.num_blocks * self.block_size
