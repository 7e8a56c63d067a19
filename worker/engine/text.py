"""From token ids to text, as they come: exact, stopped at stop strings, never half a character.

The pieces that a `TextStream` gives join to what decoding all output at once would give, cut before
the first stop string to be completed (of several completed by the same character, the longest).
How the output is split into tokens does not change where it is cut.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import Tokenizer

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
CONTEXT_TOKENS = 6
"""How many tokens before the output decide how it decodes."""

_OPEN_TOKENS = 8


class Piece(NamedTuple):
    """Text that can no longer change, and the stop string that ended it, if one did."""

    text: str
    stop: str | None = None


class Detokenizer:
    """Decodes tokens one by one; special tokens have no text.

    Args:
        tokenizer: of the model.
        prompt: ids that came before. Their last few decide how the first token decodes, such as
            whether it keeps its leading space; a character they left open is completed.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._window = list(prompt[-CONTEXT_TOKENS:])
        self._context = len(self._window)
        self._given = self._decode(self._window).rstrip(_REPLACEMENT)

    def push(self, token: int) -> str:
        """The text that `token` completes; empty while a character is open."""
        self._window.append(token)
        text = self._decode(self._window)
        decided = text.rstrip(_REPLACEMENT)
        overdue = len(self._window) - self._context > _OPEN_TOKENS
        if overdue:
            # NOTE: no character has so many tokens, so only the last one can still be open.
            decided = text.removesuffix(_REPLACEMENT)
        piece = decided[len(self._given) :]
        if overdue:
            self._slide(self._window[-CONTEXT_TOKENS:])
            self._given = self._given.removesuffix(_REPLACEMENT)
        elif piece and decided == text:
            # NOTE: a token decodes by what is just before it, so the last piece stays as context.
            self._slide(self._window[self._context :])
        else:
            self._given += piece
        return piece

    def flush(self) -> str:
        """What is left: a character that never completed, as U+FFFD."""
        return self._decode(self._window)[len(self._given) :]

    def _slide(self, window: list[int]) -> None:
        self._window = window
        self._context = len(window)
        self._given = self._decode(window)

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True)


class StopStrings:
    """Passes text on until a stop string completes, holding back what may become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._longest = max(map(len, stops), default=0)
        self._held = ""

    def push(self, text: str) -> Piece:
        """The text that is now decided; with `stop` set it is the last."""
        if not self._stops:
            return Piece(text)
        self._held += text
        starts = ((self._held.find(stop), stop) for stop in self._stops)
        completed = [(start + len(stop), start, stop) for start, stop in starts if start >= 0]
        if completed:
            _, start, stop = min(completed)
            piece, self._held = self._held[:start], ""
            return Piece(piece, stop)
        cut = len(self._held) - self._undecided()
        piece, self._held = self._held[:cut], self._held[cut:]
        return Piece(piece)

    def flush(self) -> str:
        """The text held back, when nothing more comes."""
        rest, self._held = self._held, ""
        return rest

    def _undecided(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        for length in range(min(self._longest - 1, len(self._held)), 0, -1):
            end = self._held[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0


class TextStream:
    """A sequence's output as text: a `Detokenizer` followed by its `StopStrings`."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stops: Sequence[str]) -> None:
        self._detokenizer = Detokenizer(tokenizer, prompt)
        self._stops = StopStrings(stops)

    def push(self, token: int) -> Piece:
        """The text that `token` decided."""
        return self._stops.push(self._detokenizer.push(token))

    def flush(self) -> Piece:
        """The text still open when generation ends for another reason than a stop string."""
        piece = self._stops.push(self._detokenizer.flush())
        return piece if piece.stop else Piece(piece.text + self._stops.flush())
