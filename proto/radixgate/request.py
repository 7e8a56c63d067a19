"""Builds the requests that clients send, from plain Python values.

Values are checked by the gateway, not here: one place decides what is valid, for every language.
What no message can carry fails here, in the way that the gateway would: with `InvalidRequest`.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, TypedDict, Unpack

import grpc
from google.protobuf.message import Message

from radixgate.errors import InvalidRequest
from radixgate.prefix import pack_tokens
from radixgate.v1.gateway_pb2 import ChatMessage, ChatRequest, FinishRequest, RouteRequest
from radixgate.v1.generate_pb2 import GenerateRequest, Sampling, Scope, Stopping

Prompt: TypeAlias = str | bytes | Iterable[int]
"""Text, token ids as little-endian uint32, or token ids."""

Messages: TypeAlias = Iterable[Mapping[str, str]]
"""Chat messages, each `{"role": ..., "content": ...}`."""

_GROUPS: Final[dict[str, type[Message]]] = {
    "scope": Scope,
    "sampling": Sampling,
    "stopping": Stopping,
}


class Options(TypedDict, total=False):
    """Keyword arguments of every request; what is left out or None gets the gateway's default.

    Args:
        request_id: names the request in logs and errors.
        model: the model to ask; may be left out when there is only one.
        tenant, salt: who shares KV blocks with whom; adapter: the LoRA adapter's name.
        temperature: 0 is greedy. top_p, top_k, seed: see the `Sampling` message.
        max_tokens: the most tokens to generate.
        stop: the string, or strings, that end the text. stop_token_ids: tokens that do.
        ignore_eos: go on past the model's end-of-sequence tokens.
        priority: higher goes first; 0 is normal.
    """

    request_id: str | None
    model: str | None
    tenant: str | None
    salt: str | None
    adapter: str | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    seed: int | None
    max_tokens: int | None
    stop: str | Iterable[str] | None
    stop_token_ids: Iterable[int] | None
    ignore_eos: bool | None
    priority: int | None


def generate_request(prompt: Prompt, **options: Unpack[Options]) -> GenerateRequest:
    """A request to continue `prompt`.

    Raises:
        InvalidRequest: an option does not exist, or a value does not fit its field at all, such as
            a negative token id.
        TypeError: a value has the wrong type.
    """
    request = GenerateRequest(**_fields(options))
    with _named("prompt"):
        if isinstance(prompt, str):
            request.text = prompt
        else:
            request.packed = prompt if isinstance(prompt, bytes) else pack_tokens(prompt)
    return request


def chat_request(messages: Messages, **options: Unpack[Options]) -> ChatRequest:
    """A request for the next message of a chat.

    Raises:
        InvalidRequest: as `generate_request`, or a message has a key besides role and content.
        TypeError: as `generate_request`.
    """
    request = ChatRequest(**_fields(options))
    for index, message in enumerate(messages):
        with _named(f"messages[{index}]"):
            request.messages.append(ChatMessage(**message))
    return request


def route_request(
    prompt: Prompt | None,
    messages: Messages | None,
    without: Iterable[str] = (),
    **options: Unpack[Options],
) -> RouteRequest:
    """A request for the routing decision about a prompt or a chat, `without` some workers' ids.

    Raises:
        InvalidRequest: as `generate_request` and `chat_request`.
        TypeError: not exactly one of `prompt` and `messages` is given, or as `generate_request`.
    """
    if prompt is not None and messages is None:
        return RouteRequest(generate=generate_request(prompt, **options), without=without)
    if messages is not None and prompt is None:
        return RouteRequest(chat=chat_request(messages, **options), without=without)
    raise TypeError("give a prompt or messages, one of them")


def finish_request(
    reservation: str, status: grpc.StatusCode, cached_tokens: int | None, message: str
) -> FinishRequest:
    """The report of how a routed request ended.

    Raises:
        InvalidRequest: a value does not fit its field at all.
    """
    request = FinishRequest(status=status.value[0])
    fields: dict[str, Any] = {
        "reservation": reservation,
        "cached_tokens": cached_tokens,
        "message": message,
    }
    for name, value in fields.items():
        with _named(name):
            request.MergeFrom(FinishRequest(**{name: value}))
    return request


def _fields(options: Options) -> dict[str, Any]:
    """Options as the fields that `GenerateRequest` and `ChatRequest` share."""
    given: dict[str, Any] = dict(options)
    if isinstance(given.get("stop"), str):
        given["stop"] = [given["stop"]]
    fields: dict[str, Any] = {group: kind() for group, kind in _GROUPS.items()}
    for name, value in given.items():
        group = next((group for group, kind in _GROUPS.items() if _has(kind, name)), None)
        with _named(name):
            if group:
                fields[group].MergeFrom(_GROUPS[group](**{name: value}))
            else:
                fields[name] = getattr(GenerateRequest(**{name: value}), name)
    return fields


def _has(kind: type[Message], field: str) -> bool:
    return field in kind.DESCRIPTOR.fields_by_name


@contextmanager
def _named(field: str) -> Iterator[None]:
    """A value that `field` cannot hold at all fails with the name of the field."""
    try:
        yield
    except ValueError as error:
        message = f"{field}: {error}"
        raise InvalidRequest(message, grpc.StatusCode.INVALID_ARGUMENT) from error
