"""Templates render as `transformers` renders them, and fail with a sentence."""

import pytest

from gateway.text.template import ChatTemplate
from tests.models import CHAT_TEMPLATE

MESSAGES = [{"role": "user", "content": "é <b>&</b>"}, {"role": "assistant", "content": " yes "}]

TEMPLATES = {
    "chatml": CHAT_TEMPLATE,
    "trimmed blocks": "{% for m in messages %}\n  {% if m.role == 'user' %}\n{{ m.content }}\n"
    "  {% endif %}\n{% endfor %}\nend",
    "loop controls": "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
    "{{ m.content }}{% endfor %}",
    "tojson": "{{ messages | tojson }} {{ messages | tojson(indent=2) }}",
    "special tokens": "{{ bos_token }}{{ messages[0]['content'] }}{{ eos_token }}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}!"
    "{% endfor %}",
    "undefined": "{% if tools %}tools{% endif %}{% if documents is none %}none{% endif %}"
    "{% if thinking is not defined %}plain{% endif %}{{ missing }}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{% endfor %}{{ ns.n }}",
    "today": "{{ strftime_now('%Y') }}",
}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.slow
@pytest.mark.parametrize("name", TEMPLATES)
def test_equals_transformers(name: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    (expected,), _ = render_jinja_template(
        [MESSAGES], chat_template=TEMPLATES[name], add_generation_prompt=True, **SPECIAL
    )
    assert ChatTemplate(TEMPLATES[name], SPECIAL).render(MESSAGES) == expected


def test_asks_for_the_next_message() -> None:
    rendered = ChatTemplate(CHAT_TEMPLATE, {}).render([{"role": "user", "content": "hi"}])
    assert rendered == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_that_does_not_compile() -> None:
    with pytest.raises(ValueError, match="does not compile"):
        ChatTemplate("{% for %}", {})


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[7]['content'] }}", "refuses the messages"),
        ("{{ messages.append(1) }}", "refuses the messages"),
        ("{{ ''.__class__.__mro__ }}", "refuses the messages"),
    ],
)
def test_messages_that_a_template_refuses(source: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ChatTemplate(source, {}).render(MESSAGES)
