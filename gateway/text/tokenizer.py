"""Text to token ids, exactly as the model's tokenizer does it, and each piece of text only once.

Special tokens cut text into segments that tokenize independently, so segments are memoised by their
content: a chat of forty turns tokenizes only its last turn. Where a tokenizer's segments depend on
each other, or might, the text is tokenized whole.
"""

import json
import re
from typing import Any, Final

from radixgate.prefix import pack_tokens
from tokenizers import Tokenizer

from gateway.text.memo import ByteMemo

MEMO_CAPACITY: Final = 64 * 1024 * 1024

# Pre-tokenizers whose work on a segment does not depend on what is around the segment.
_LOCAL_PRE_TOKENIZERS: Final = {
    "BertPreTokenizer",
    "ByteLevel",
    "CharDelimiterSplit",
    "Digits",
    "Punctuation",
    "Split",
    "UnicodeScripts",
    "Whitespace",
    "WhitespaceSplit",
}


class TextTokenizer:
    """The tokenizer of one model; safe across threads, and leaves the GIL while it works."""

    def __init__(self, tokenizer_json: bytes, memo_capacity: int = MEMO_CAPACITY) -> None:
        """Load a `tokenizer.json`.

        Raises:
            ValueError: it is not one.
        """
        try:
            self._tokenizer = Tokenizer.from_buffer(tokenizer_json)
        # NOTE: the library raises bare Exceptions.
        except Exception as error:
            raise ValueError(f"the tokenizer does not load: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._memo = ByteMemo(memo_capacity)
        self._special = _independent_special_tokens(json.loads(tokenizer_json))
        longest_first = sorted(self._special, key=len, reverse=True)
        self._cut = re.compile(f"({'|'.join(map(re.escape, longest_first))})")
        self._frame = self._find_frame()

    def encode(self, text: str, *, add_special_tokens: bool) -> bytes:
        """The token ids of `text` as little-endian uint32.

        Args:
            text: special tokens written in it become those tokens.
            add_special_tokens: whether to add what the model expects around a text, such as a
                beginning-of-sequence token. A chat template writes those itself.
        """
        if not self._special or (add_special_tokens and self._frame is None):
            return self._encode_whole([text], add_special_tokens)[0]
        segments = self._cut.split(text)
        packed = [self._special.get(segment) or self._memo.get(segment) for segment in segments]
        missing = [at for at, known in enumerate(packed) if known is None and segments[at]]
        encoded = self._encode_whole([segments[at] for at in missing], add_special_tokens=False)
        for at, ids in zip(missing, encoded, strict=True):
            self._memo.put(segments[at], ids)
            packed[at] = ids
        before, after = self._frame if add_special_tokens and self._frame else (b"", b"")
        return b"".join([before, *(ids or b"" for ids in packed), after])

    def _encode_whole(self, texts: list[str], add_special_tokens: bool) -> list[bytes]:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        return [pack_tokens(encoding.ids) for encoding in encodings]

    def _find_frame(self) -> tuple[bytes, bytes] | None:
        """What the model expects before and after any text; None when it is not that simple."""
        frames = set()
        for text in ("a", "b c"):
            bare = self._tokenizer.encode(text, add_special_tokens=False).ids
            whole = self._tokenizer.encode(text, add_special_tokens=True).ids
            starts = [
                start
                for start in range(len(whole) - len(bare) + 1)
                if whole[start : start + len(bare)] == bare
            ]
            if len(starts) != 1:
                return None
            end = starts[0] + len(bare)
            frames.add((pack_tokens(whole[: starts[0]]), pack_tokens(whole[end:])))
        return frames.pop() if len(frames) == 1 else None


def _independent_special_tokens(tokenizer: dict[str, Any]) -> dict[str, bytes]:
    """Tokens at which text may be cut, with their ids packed; empty when it may not be cut.

    The library takes tokens that are not `normalized` out of the raw text first, leftmost longest.
    Those that also take the space around them, or match whole words only, are not plain cuts.
    """
    raw = [token for token in tokenizer["added_tokens"] if not token["normalized"]]
    plain = not any(token["lstrip"] or token["rstrip"] or token["single_word"] for token in raw)
    if not (plain and _is_local(tokenizer.get("pre_tokenizer")) and _is_certain(tokenizer)):
        return {}
    return {token["content"]: pack_tokens([token["id"]]) for token in raw if token["content"]}


def _is_local(pre_tokenizer: dict[str, Any] | None) -> bool:
    """Whether no step looks beyond the segment it is given."""
    if pre_tokenizer is None:
        return True
    if pre_tokenizer["type"] == "Sequence":
        return all(map(_is_local, pre_tokenizer["pretokenizers"]))
    if pre_tokenizer["type"] == "Metaspace":
        # "first" means the first segment of the text.
        return pre_tokenizer.get("prepend_scheme") in ("always", "never")
    return pre_tokenizer["type"] in _LOCAL_PRE_TOKENIZERS


def _is_certain(tokenizer: dict[str, Any]) -> bool:
    """Whether the same text always has the same tokens: BPE dropout is random."""
    return not tokenizer["model"].get("dropout")
