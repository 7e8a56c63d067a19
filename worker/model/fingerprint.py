"""The fingerprint of a model: equal for equal weights, config and tokenizer, wherever they lie.

Other weights make other KV, so a model whose weights are rounded is another model.

It is XXH3-128 over config.json (sorted keys, without what does not change the KV), tokenizer.json,
of every weights file its name, size, header and 64 evenly spaced pages of 4 KiB, and the format of
weights that are kept rounded: enough to tell models and fine-tunes apart in milliseconds, not proof
against somebody who forges one.
"""

import json
from pathlib import Path

import xxhash

from worker.model.directory import ModelDirectory, read_header
from worker.model.weights import WeightFormat

_PAGE = 4096
_PAGES = 64
_IGNORED = frozenset(
    {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache"}
)


def fingerprint(model: ModelDirectory, weights: WeightFormat = WeightFormat.FLOAT32) -> str:
    """32 hexadecimal digits, for a model with its weights kept in a format."""
    state = xxhash.xxh3_128()
    config = {key: value for key, value in model.config.items() if key not in _IGNORED}
    parts = [json.dumps(config, sort_keys=True).encode(), model.tokenizer.read_bytes()]
    for file in model.weights:
        parts += [file.name.encode(), read_header(file), *_sampled(file)]
    if weights != WeightFormat.FLOAT32:
        parts.append(weights.encode())
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.hexdigest()


def _sampled(file: Path) -> list[bytes]:
    """The size of `file`, then the first page, the last one, and those evenly between."""
    size = file.stat().st_size
    last = max(0, size - _PAGE)
    with file.open("rb") as source:
        pages = [size.to_bytes(8, "little")]
        for offset in sorted({last * page // (_PAGES - 1) for page in range(_PAGES)}):
            source.seek(offset)
            pages.append(source.read(_PAGE))
    return pages
