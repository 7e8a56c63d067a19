"""The model card: all a gateway needs to tokenize for this worker, and golden vectors to prove it.

The golden vectors are made by other means than the gateway uses where there are any: chats are
rendered by transformers itself. A gateway that gets the same names prefixes as this worker does.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from radixgate.namespace import Namespace
from radixgate.prefix import boundary_hashes, pack_tokens
from radixgate.v1.generate_pb2 import Scope
from radixgate.v1.worker_pb2 import Golden, ModelCard
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

_log = logging.getLogger(__name__)

_TEXTS = (
    "The capital of France is",
    "  two spaces,\ttab, 1234567890\n\nand\r\nlines  ",
    "naïve café, 東京, Ελλάδα, עברית, 🙂👩‍👩‍👧, e\u0301",
    "def f(x):\n    return x ** 2  # ok\n",
)
_CHAT = (
    {"role": "user", "content": "Name a prime, please."},
    {"role": "assistant", "content": "7"},
    {"role": "user", "content": "Another — größer als 10?"},
)
_SCOPES = (Scope(), Scope(tenant="tenant-é", salt="salt"))


class CardMaker:
    """Makes the cards of one worker.

    Args:
        base: a card with everything but what this class adds: tokenizer, template and goldens.
        directory: of the model.
        tokenizer_json: the content of its tokenizer.json.

    Raises:
        ValueError: the tokenizer does not load.
    """

    def __init__(self, base: ModelCard, directory: Path, tokenizer_json: bytes) -> None:
        self._chat = _load_chat(directory)
        self._template = _template(self._chat)
        if self._template and (problem := self._render_problem()):
            _log.warning("the chat template is left out of the model card: %s", problem)
            self._template = ""
        self._card = ModelCard(
            tokenizer_json=tokenizer_json,
            chat_template=self._template,
            special_tokens=_special_tokens(self._chat),
            golden=Golden(
                tokenized=_tokenized(tokenizer_json, _special_tokens(self._chat)),
                hashed=[_hashed(base, scope) for scope in _SCOPES],
            ),
        )
        self._card.MergeFrom(base)

    def card(self) -> ModelCard:
        """The card now."""
        card = ModelCard()
        card.CopyFrom(self._card)
        if self._template:
            # NOTE: rendered for each card, since some templates write today's date.
            card.golden.rendered.add(
                messages_json=json.dumps(_CHAT, ensure_ascii=False), text=self._render()
            )
        return card

    def _render(self) -> str:
        rendered: Any = self._chat.apply_chat_template(
            [dict(message) for message in _CHAT],
            chat_template=self._template,
            tokenize=False,
            add_generation_prompt=True,
        )
        return str(rendered)

    def _render_problem(self) -> str:
        try:
            self._render()
        except Exception as error:
            # NOTE: a template is a program of the model's author and may raise anything.
            return f"{type(error).__name__}: {error}"
        return ""


def _load_chat(directory: Path) -> PreTrainedTokenizerBase:
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        directory, local_files_only=True
    )
    return tokenizer


def _template(chat: PreTrainedTokenizerBase) -> str:
    template = chat.chat_template
    if isinstance(template, Mapping):
        template = template.get("default", "")
    return str(template or "")


def _special_tokens(chat: PreTrainedTokenizerBase) -> dict[str, str]:
    return {
        name: str(token)
        for name, token in chat.special_tokens_map.items()
        if not isinstance(token, list)
    }


def _tokenized(tokenizer_json: bytes, special: Mapping[str, str]) -> list[Golden.Tokenized]:
    tokenizer = Tokenizer.from_buffer(tokenizer_json)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    mixed = "a" + " b ".join(dict.fromkeys(special.values())) + "c"
    return [
        Golden.Tokenized(text=text, ids=tokenizer.encode(text, add_special_tokens=True).ids)
        for text in (*_TEXTS, mixed)
    ]


def _hashed(card: ModelCard, scope: Scope) -> Golden.Hashed:
    packed = pack_tokens(token % card.vocab_size for token in range(3 * card.stride + 5))
    namespace = Namespace(card.fingerprint, scope.adapter, scope.tenant, scope.salt)
    hashes = boundary_hashes(packed, card.stride, namespace.seed())
    return Golden.Hashed(scope=scope, packed=packed, hashes=hashes)
