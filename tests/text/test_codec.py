"""A model card becomes prompts, off the event loop, once per content."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from radixgate.prefix import pack_tokens
from radixgate.v1.worker_pb2 import Golden, ModelCard
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from gateway.text.codec import Codec
from gateway.text.codecs import Codecs
from gateway.text.goldens import recompute_text
from tests.models import CHAT_TEMPLATE

WORDS = ["<s>", "<|im_start|>", "<|im_end|>", "user", "assistant", "hi", "there"]
HI = [{"role": "user", "content": "hi"}]
HI_TEXT = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def make_card(**fields: str) -> ModelCard:
    """A model whose tokens are whole words and which begins every text with <s>."""
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, "<s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(WORDS[:3])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    card = ModelCard(
        model="words",
        fingerprint="f",
        tokenizer_json=tokenizer.to_str().encode(),
        chat_template=CHAT_TEMPLATE,
    )
    card.MergeFrom(ModelCard(**fields))
    return card


def test_text_begins_as_the_model_expects_and_chat_as_its_template_says() -> None:
    codec = Codec(make_card())
    assert codec.encode("hi there") == pack_tokens([0, 5, 6])
    assert codec.render(HI) == HI_TEXT
    assert codec.encode_chat(HI) == pack_tokens([1, 3, 5, 2, 1, 4])


def test_chat_without_a_template() -> None:
    card = make_card()
    card.chat_template = ""
    with pytest.raises(ValueError, match="model 'words' has no chat template; use Generate"):
        Codec(card).encode_chat(HI)


def test_goldens_are_answered_in_order() -> None:
    card = make_card()
    card.golden.tokenized.add(text="hi", ids=[99])
    card.golden.tokenized.add(text="there hi")
    card.golden.rendered.add(messages_json='[{"role": "user", "content": "hi"}]')
    assert recompute_text(card) == Golden(
        tokenized=[
            Golden.Tokenized(text="hi", ids=[0, 5]),
            Golden.Tokenized(text="there hi", ids=[0, 6, 5]),
        ],
        rendered=[
            Golden.Rendered(messages_json='[{"role": "user", "content": "hi"}]', text=HI_TEXT)
        ],
    )


async def test_codecs_are_made_once_per_content_and_work_in_threads() -> None:
    with ThreadPoolExecutor(1) as executor:
        codecs = Codecs(executor)
        first = await codecs.call(make_card(), lambda codec: codec)
        assert await codecs.call(make_card(worker="another"), lambda codec: codec) is first
        assert await codecs.call(make_card(chat_template="changed"), lambda codec: codec) != first
        assert await codecs.call(make_card(), lambda _: threading.get_ident()) != (
            threading.get_ident()
        )


async def test_a_card_that_cannot_be_used() -> None:
    loading = pytest.raises(ValueError, match="the tokenizer does not load")
    with ThreadPoolExecutor(1) as executor, loading:
        await Codecs(executor).call(ModelCard(tokenizer_json=b"x"), lambda codec: codec)
