"""What the engine tells about a request while it works on it, in this order."""

from enum import Enum
from typing import NamedTuple

from worker.kv.misses import Misses


class FinishReason(Enum):
    """Why a generation ended by itself."""

    STOP = "stop"
    LENGTH = "length"


class Started(NamedTuple):
    """Scheduled for the first time, with `cached_tokens` of the prompt already held."""

    prompt_tokens: int
    cached_tokens: int


class Output(NamedTuple):
    """One new token and the text it decided; the token that stops a generation has no text."""

    token: int
    text: str


class Finished(NamedTuple):
    """The last event of a generation; seconds count from its arrival.

    `misses` tells of the prompt tokens that were not cached when it was first scheduled; None for a
    request that was resumed.
    """

    reason: FinishReason
    stop: str | None
    prompt_tokens: int
    cached_tokens: int
    misses: Misses | None
    output_tokens: int
    queue_seconds: float
    ttft_seconds: float
    total_seconds: float
    preemptions: int


class Failed(NamedTuple):
    """The last event instead of `Finished`: the engine could not go on with this request."""

    message: str


class Expired(NamedTuple):
    """The last event instead of `Finished`: the deadline passed, nothing more is computed."""

    message: str


End = Finished | Failed | Expired
Event = Started | Output | End
