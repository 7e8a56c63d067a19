"""The codecs of all models, made once each; they work in threads, off the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple, TypeVar

from radixgate.v1.worker_pb2 import ModelCard

from gateway.text.codec import Codec

ResultT = TypeVar("ResultT")


class Codecs:
    """Args: `executor`, the threads that load and run tokenizers and templates."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._made: dict[str, _Made] = {}

    async def call(self, card: ModelCard, work: Callable[[Codec], ResultT]) -> ResultT:
        """`work` with the codec of `card`, in a thread.

        Raises:
            ValueError: the card's tokenizer or template cannot be used.
            Exception: what `work` raises.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: work(self._codec(card)))

    def _codec(self, card: ModelCard) -> Codec:
        # NOTE: threads that meet here may make a codec twice, which does no harm.
        content = _Content(
            card.fingerprint, card.chat_template, tuple(sorted(card.special_tokens.items()))
        )
        made = self._made.get(card.model)
        if made is None or made.content != content:
            made = self._made[card.model] = _Made(content, Codec(card))
        return made.codec


class _Content(NamedTuple):
    """What decides a codec. The fingerprint stands for the tokenizer, which is large."""

    fingerprint: str
    chat_template: str
    special_tokens: tuple[tuple[str, str], ...]


class _Made(NamedTuple):
    content: _Content
    codec: Codec
