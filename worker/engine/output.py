"""The output of one request as text, and where it ends: a function of its tokens alone.

So a worker that takes over from another replays the tokens, and is then where that one was.
"""

from radixgate.prefix import TOKEN_BYTES, unpack_tokens
from tokenizers import Tokenizer

from worker.engine.events import FinishReason
from worker.engine.request import Request
from worker.engine.text import CONTEXT_TOKENS, TextStream


class OutputText:
    """Takes the output of `request` token by token, until it ends.

    Attributes:
        tokens: how many it has taken.
        reason: why the output has ended; None while it goes on.
        stop: the stop string that ended it, if one did.
    """

    def __init__(self, tokenizer: Tokenizer, request: Request) -> None:
        self.tokens = 0
        self.reason: FinishReason | None = None
        self.stop: str | None = None
        self._request = request
        # NOTE: unpacking a long prompt for the few tokens that count would hold up a step.
        before = unpack_tokens(request.prompt[-CONTEXT_TOKENS * TOKEN_BYTES :])
        self._text = TextStream(tokenizer, before, request.stop)

    def take(self, token: int) -> str:
        """The text that `token` decides; it may end the output."""
        self.tokens += 1
        if token in self._request.stop_token_ids:
            self.reason = FinishReason.STOP
            text, self.stop = self._text.flush()
            return text
        text, self.stop = self._text.push(token)
        if self.stop is not None:
            self.reason = FinishReason.STOP
        elif self.tokens == self._request.max_tokens:
            rest, self.stop = self._text.flush()
            text += rest
            self.reason = FinishReason.LENGTH if self.stop is None else FinishReason.STOP
        return text

    def replay(self) -> None:
        """Take what `request` has from another worker; its text has been delivered.

        Raises:
            ValueError: it goes on after the token that ends it.
        """
        for token in unpack_tokens(self._request.resumed):
            if self.reason is not None:
                raise ValueError(
                    f"resumed_tokens: {self._request.resumed_tokens}, but the output ends with "
                    f"token {self.tokens} of them ({self._end()})"
                )
            self.take(token)

    def _end(self) -> str:
        if self.stop is not None:
            return f"stop string {self.stop!r}"
        return "a stop token" if self.reason is FinishReason.STOP else "max_tokens"
