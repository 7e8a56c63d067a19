"""A request that another worker began, up to where that one was."""

import asyncio

from radixgate.refused import invalid_argument
from radixgate.v1.generate_pb2 import Finished, GenerateResponse
from tokenizers import Tokenizer

from worker.engine.output import OutputText
from worker.engine.request import Request
from worker.serve.messages import REASONS


class Resumer:
    """Args: `tokenizer`, of the model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    async def resume(self, request: Request) -> OutputText:
        """The text of `request` so far, worked out beside the event loop and the engine.

        Raises:
            RefusedError: INVALID_ARGUMENT, it goes on after its own end.
        """
        text = OutputText(self._tokenizer, request)
        with invalid_argument():
            await asyncio.to_thread(text.replay)
        return text


def ended(request: Request, text: OutputText) -> GenerateResponse | None:
    """The only message there is to send if what is resumed had ended; None if it goes on."""
    if text.reason is None:
        return None
    return GenerateResponse(
        finished=Finished(
            reason=REASONS[text.reason],
            stop=text.stop or "",
            prompt_tokens=request.prompt_tokens,
            output_tokens=text.tokens,
        )
    )
