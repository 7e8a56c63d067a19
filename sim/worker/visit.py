"""One request at a worker: what it brings, and the output that is going to come."""

from dataclasses import dataclass, field

from radixgate.prefix import TOKEN_BYTES

from sim.policy.base import Job
from sim.request import LAST_ID, Request
from worker.engine.request import Request as EngineRequest
from worker.kv.tokens import Tokens


@dataclass(slots=True, eq=False)
class Visit:
    """Args:
        job: as the gateway sent it.
        request: of the trace.
        worker: where it is, an index.
        expected_tokens: that the policy believed to be cached there.

    Attributes:
        length: tokens of prompt and output so far, whether its sequence has them or not.
        final_length: at its end.
        preemptions: how often it lost its blocks; known when it has ended.
    """

    job: Job
    request: Request
    worker: int
    expected_tokens: int
    length: int = field(init=False)
    final_length: int = field(init=False)
    preemptions: int = 0
    _output: bytes = field(init=False)

    def __post_init__(self) -> None:
        output = self.request.output
        self.length = self.request.prompt.tokens
        self.final_length = self.length + self.request.output_tokens
        self._output = b"" if output is None else output.packed()

    def engine_request(self) -> EngineRequest:
        """As the engine takes it."""
        return EngineRequest(
            "",
            self.job.prompt.seed,
            self.job.prompt.packed,
            self.request.output_tokens,
            tenant=self.request.tenant,
            priority=self.request.priority,
        )

    def tokens(self, stride: int) -> Tokens:
        """Of its prompt."""
        tokens = Tokens(self.job.prompt.seed, stride, self.request.tenant)
        tokens.extend(self.job.prompt.packed)
        return tokens

    def book(self, tokens: Tokens) -> None:
        """Append what was generated to the `tokens` of its sequence."""
        booked, prompt = len(tokens), self.request.prompt.tokens
        if self._output:
            start, stop = booked - prompt, self.length - prompt
            tokens.extend(self._output[start * TOKEN_BYTES : stop * TOKEN_BYTES])
        else:
            own = LAST_ID + 1 + self.request.number
            tokens.extend(own.to_bytes(TOKEN_BYTES, "little") * (self.length - booked))
