"""The fingerprint of a model: equal for equal weights, config and tokenizer, wherever they lie.

It is XXH3-128 over config.json (sorted keys, without what does not change the KV), tokenizer.json,
and of every weights file its name, size, header and 64 evenly spaced pages of 4 KiB: enough to tell
models and fine-tunes apart in milliseconds, not proof against somebody who forges one.
"""

import json
from pathlib import Path

import xxhash

from worker.model.directory import ModelDirectory, read_header

_PAGE = 4096
_PAGES = 64
_IGNORED = frozenset(
    {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache"}
)


def fingerprint(model: ModelDirectory) -> str:
    """32 hexadecimal digits."""
    state = xxhash.xxh3_128()
    config = {key: value for key, value in model.config.items() if key not in _IGNORED}
    parts = [json.dumps(config, sort_keys=True).encode(), model.tokenizer.read_bytes()]
    for file in model.weights:
        parts += [file.name.encode(), read_header(file), *_sampled(file)]
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
