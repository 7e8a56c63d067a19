"""What messages of a chat have in common, without a tokenizer.

A token is named by four bytes of text, or by what it stands for: the beginning of a message of some
role, its end, or a part of it that is not text. Texts that begin alike have tokens in common, and
about as many as a real tokenizer finds.
"""

import json
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final

BYTES_A_TOKEN: Final = 4
END: Final = ("end",)


def begin(role: str) -> Hashable:
    """The token that begins a message of `role`."""
    return ("begin", role)


def said(message: Mapping[str, Any]) -> Iterator[Hashable]:
    """The tokens of `message` after its beginning: content, calls of tools, and its end."""
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            yield from spelled(text)
        elif part is not None:
            yield ("part", _written(part))
    for field in ("tool_calls", "tool_call_id"):
        if message.get(field):
            yield from spelled(_written(message[field]))
    yield END


def tools(offered: object) -> Iterator[Hashable]:
    """The tokens of the `tools` that a request offers, which come first."""
    if offered:
        yield begin("tools")
        yield from spelled(_written(offered))
        yield END


def spelled(text: str) -> Iterator[bytes]:
    """The tokens of `text`."""
    data = text.encode(errors="surrogatepass")
    return (data[at : at + BYTES_A_TOKEN] for at in range(0, len(data), BYTES_A_TOKEN))


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
