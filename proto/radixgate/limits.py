"""What every request must keep, whoever checks it: client, gateway or worker.

Checks raise ValueError (on the wire: INVALID_ARGUMENT) naming the field, what was found, and what
is allowed. They need no model; `check_prompt` takes the model's limits from its card.
"""

from radixgate.prefix import TOKEN_BYTES, pack_tokens, unpack_tokens
from radixgate.v1.gateway_pb2 import ChatRequest
from radixgate.v1.generate_pb2 import GenerateRequest, Sampling, Stopping

MAX_TEMPERATURE = 100.0
MAX_STOP_STRINGS = 16
MAX_STOP_STRING_LENGTH = 1024
MAX_CHARACTERS_PER_TOKEN = 64
MAX_PIN_SECONDS = 7 * 24 * 3600.0
MAX_MESSAGE_BYTES = 64 * 1024 * 1024


def check_generate(request: GenerateRequest) -> None:
    """Check all of `request` that does not depend on a model.

    Raises:
        ValueError: the prompt is missing or empty, or sampling or stopping is out of range.
    """
    match request.WhichOneof("prompt"):
        case "text" if not request.text:
            raise ValueError("prompt: the text is empty")
        case "tokens" if not request.tokens.ids:
            raise ValueError("prompt: the list of token ids is empty")
        case "packed" if not request.packed:
            raise ValueError("prompt: the packed token ids are empty")
        case "packed" if len(request.packed) % TOKEN_BYTES:
            raise ValueError(
                f"prompt: {len(request.packed)} packed bytes is not a multiple of {TOKEN_BYTES}"
            )
        case None:
            raise ValueError("prompt: missing; set one of text, tokens or packed")
    check_sampling(request.sampling)
    check_stopping(request.stopping)


def check_chat(request: ChatRequest) -> None:
    """Check all of `request` that does not depend on a model.

    Raises:
        ValueError: there is no message, one has no role, or sampling or stopping is out of range.
    """
    if not request.messages:
        raise ValueError("messages: empty; a chat needs at least one message")
    for index, message in enumerate(request.messages):
        if not message.role:
            raise ValueError(f"messages[{index}].role: empty; use system, user or assistant")
    check_sampling(request.sampling)
    check_stopping(request.stopping)


def check_sampling(sampling: Sampling) -> None:
    """Check the ranges that the `Sampling` message documents; NaN is in none of them."""
    if sampling.HasField("temperature") and not 0 <= sampling.temperature <= MAX_TEMPERATURE:
        raise ValueError(
            f"sampling.temperature: {sampling.temperature:g} is outside [0, {MAX_TEMPERATURE:g}]"
        )
    if sampling.HasField("top_p") and not 0 < sampling.top_p <= 1:
        raise ValueError(f"sampling.top_p: {sampling.top_p:g} is outside (0, 1]")


def check_stopping(stopping: Stopping) -> None:
    """Check what the `Stopping` message documents."""
    if stopping.HasField("max_tokens") and stopping.max_tokens == 0:
        raise ValueError("stopping.max_tokens: 0; ask for at least 1 or leave it unset")
    if len(stopping.stop) > MAX_STOP_STRINGS:
        raise ValueError(
            f"stopping.stop: {len(stopping.stop)} strings; at most {MAX_STOP_STRINGS} are allowed"
        )
    for index, stop in enumerate(stopping.stop):
        if not 0 < len(stop) <= MAX_STOP_STRING_LENGTH:
            raise ValueError(
                f"stopping.stop[{index}]: {len(stop)} characters; "
                f"a stop string has 1 to {MAX_STOP_STRING_LENGTH}"
            )


def check_ttl(seconds: float) -> None:
    """Check how long a pin shall last.

    Raises:
        ValueError: it is not above 0 and at most `MAX_PIN_SECONDS`.
    """
    if not 0 < seconds <= MAX_PIN_SECONDS:
        raise ValueError(f"ttl_seconds: {seconds:g} is outside (0, {MAX_PIN_SECONDS:g}]")


def check_text(characters: int, max_context: int) -> None:
    """Check the length of a prompt that is still text, to spare tokenizing what cannot fit.

    Raises:
        ValueError: it has more than `MAX_CHARACTERS_PER_TOKEN` for every token of the context.
    """
    most = max_context * MAX_CHARACTERS_PER_TOKEN
    if characters > most:
        raise ValueError(
            f"prompt: {characters} characters; for the model's context of {max_context} tokens at "
            f"most {most} are tokenized"
        )


def packed_prompt(request: GenerateRequest) -> bytes:
    """The prompt's token ids as little-endian uint32.

    Raises:
        ValueError: the prompt is missing or is text.
    """
    match request.WhichOneof("prompt"):
        case "packed":
            return request.packed
        case "tokens":
            return pack_tokens(request.tokens.ids)
        case "text":
            raise ValueError("prompt: text where token ids are needed; send text to a gateway")
        case _:
            raise ValueError("prompt: missing; set tokens or packed")


def check_resumed(request: GenerateRequest, packed: bytes) -> None:
    """Check how many of the `packed` prompt tokens are output that there is already.

    Raises:
        ValueError: no token is left of the prompt itself, or they are more than `max_tokens`.
    """
    resumed, length = request.resumed_tokens, len(packed) // TOKEN_BYTES
    if resumed and resumed >= length:
        raise ValueError(
            f"resumed_tokens: {resumed} of {length} prompt tokens; they follow at least one token "
            "that is no output"
        )
    stopping = request.stopping
    if stopping.HasField("max_tokens") and resumed > stopping.max_tokens:
        raise ValueError(
            f"resumed_tokens: {resumed}, more than stopping.max_tokens of {stopping.max_tokens}"
        )


def check_prompt(
    packed: bytes, *, vocab_size: int, max_context: int, resumed_tokens: int = 0
) -> None:
    """Check packed prompt tokens, the last `resumed_tokens` of them output, against a model.

    Raises:
        ValueError: no tokens, one outside the vocabulary, or so many that the context has no room
            for even one token of output.
    """
    # NOTE: before unpacking, which for the largest message takes a second and a gigabyte.
    length = len(packed) // TOKEN_BYTES - resumed_tokens
    if length >= max_context:
        raise ValueError(
            f"prompt: {length} tokens leave no room for output in the model's context of "
            f"{max_context}"
        )
    if not packed:
        raise ValueError("prompt: it has no tokens")
    if _reaches(packed, vocab_size):
        ids = unpack_tokens(packed)
        index, found = next((i, token) for i, token in enumerate(ids) if token >= vocab_size)
        raise ValueError(
            f"prompt: token {index} is {found}, outside the vocabulary of {vocab_size}"
        )


_SPAN = 1024
_ONES = int.from_bytes(b"\x01\0\0\0" * _SPAN, "little")


def _reaches(packed: bytes, limit: int) -> bool:
    """Whether a token is `limit`, at most 2**31, or more.

    Many tokens at once, as one integer: what has to be added to each so that `limit` and more show
    in its highest bit carries nothing over to the next, unless the bit is set before.
    """
    room, highest = (2**31 - limit) * _ONES, 2**31 * _ONES
    span = _SPAN * TOKEN_BYTES
    for start in range(0, len(packed), span):
        tokens = int.from_bytes(packed[start : start + span], "little")
        if (tokens | tokens + room) & highest:
            return True
    return False
