"""A fleet of doubles that all would give the same answer, and die in the middle of it when told.

They cut text, stop strings and limits by the worker's own rules, and check what they are asked for.
"""

from collections import deque
from collections.abc import AsyncIterator, Sequence

from grpc import StatusCode
from radixgate.namespace import NamespaceSeed
from radixgate.prefix import unpack_tokens
from radixgate.v1.generate_pb2 import Finished, GenerateRequest, GenerateResponse, Started, Tokens
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.gateway.doubles import Abort, ScriptedWorker
from worker.engine.output import OutputText
from worker.engine.request import Request
from worker.serve.messages import REASONS


def byte_tokenizer() -> Tokenizer:
    """One token for each byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: at for at, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


class Reciter:
    """The script of every worker of a fleet.

    Args: `answer`, the text that they give, a token for each byte.

    Attributes:
        deaths: for each call to come, how many Tokens messages the worker sends before it fails.
        failure: how it fails; None ends the stream without Finished.
        calls: the worker of each call so far.
        cached: what they say that they have cached of the prompt.
    """

    def __init__(self, answer: str) -> None:
        self._tokenizer = byte_tokenizer()
        self.ids: Sequence[int] = self._tokenizer.encode(answer).ids
        self.deaths: deque[int] = deque()
        self.failure: Exception | None = Abort(StatusCode.UNAVAILABLE, "killed")
        self.calls: list[str] = []
        self.cached = 0

    async def __call__(
        self, request: GenerateRequest, worker: ScriptedWorker
    ) -> AsyncIterator[GenerateResponse]:
        left = self.deaths.popleft() if self.deaths else len(self.ids) + 1
        self.calls.append(worker.name)
        resumed = request.resumed_tokens
        all_tokens = unpack_tokens(request.packed)
        assert resumed == 0 or all_tokens[-resumed:] == self.ids[:resumed]
        text = self._text(request)
        if text.reason is None:
            self.cached += 1
            prompt_tokens = len(all_tokens) - resumed
            yield GenerateResponse(
                started=Started(
                    request_id=request.request_id,
                    worker=worker.name,
                    prompt_tokens=prompt_tokens,
                    cached_tokens=self.cached,
                )
            )
            for token in self.ids[resumed:]:
                if not left:
                    break
                left -= 1
                yield GenerateResponse(tokens=Tokens(ids=[token], text=text.take(token)))
                if text.reason is not None:
                    break
        if not left:
            if self.failure:
                raise self.failure
            return
        assert text.reason is not None, "the answer is not as long as the request allows"
        yield GenerateResponse(
            finished=Finished(
                reason=REASONS[text.reason],
                stop=text.stop or "",
                prompt_tokens=len(all_tokens) - resumed,
                cached_tokens=self.cached,
                output_tokens=text.tokens,
            )
        )

    def _text(self, request: GenerateRequest) -> OutputText:
        at = len(request.packed) - 4 * request.resumed_tokens
        asked = Request(
            request_id=request.request_id,
            namespace=NamespaceSeed(0),
            prompt=request.packed[:at],
            max_tokens=request.stopping.max_tokens,
            stop=tuple(request.stopping.stop),
            stop_token_ids=frozenset(request.stopping.stop_token_ids),
            resumed=request.packed[at:],
        )
        text = OutputText(self._tokenizer, asked)
        text.replay()
        return text
