"""Prompts to token ids for one model, from its model card alone."""

from collections.abc import Mapping, Sequence

from radixgate.v1.worker_pb2 import ModelCard

from gateway.text.template import ChatTemplate
from gateway.text.tokenizer import TextTokenizer


class Codec:
    """Tokenizer and chat template of one model; safe across threads."""

    def __init__(self, card: ModelCard) -> None:
        """Load what `card` describes.

        Raises:
            ValueError: its tokenizer or template cannot be used.
        """
        self._model = card.model
        self._tokenizer = TextTokenizer(card.tokenizer_json)
        self._template = (
            ChatTemplate(card.chat_template, card.special_tokens) if card.chat_template else None
        )

    def encode(self, text: str) -> bytes:
        """Token ids of a text, as little-endian uint32, begun and ended as the model expects."""
        return self._tokenizer.encode(text, add_special_tokens=True)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> bytes:
        """Token ids of the prompt that asks for the next message of a chat.

        Raises:
            ValueError: the model has no chat template, or it refuses the messages.
        """
        return self._tokenizer.encode(self.render(messages), add_special_tokens=False)

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The same prompt as text. Raises as `encode_chat`."""
        if self._template is None:
            raise ValueError(f"model {self._model!r} has no chat template; use Generate")
        return self._template.render(messages)
