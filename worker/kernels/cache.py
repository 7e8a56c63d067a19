"""Where compiled code is kept, so that a machine compiles it once.

numba itself looks at the file of a compiled function, not at those of what it calls. So the folder
is named after all of this package: whoever changes a kernel compiles anew.
"""

import hashlib
import logging
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    UserProvidedCacheLocator,
)
from radixgate.home import radixgate_home

_config: Any = numba.config
_log = logging.getLogger(__name__)


def keep(*functions: Any) -> None:
    """Read what `functions`, compiled by numba, compile to from the cache, or write it there.

    Below NUMBA_CACHE_DIR when that is set, else below `radixgate_home()`. Where it cannot be
    written, they are compiled again in each process, and a warning says so.
    """
    before = _config.CACHE_DIR
    _config.CACHE_DIR = str(Path(before or radixgate_home() / "kernels") / _digest())
    try:
        for function in functions:
            function._cache = _Cache(function.py_func)
    except (OSError, RuntimeError) as error:
        _warn(error)
    finally:
        _config.CACHE_DIR = before


class _Place(CompileResultCacheImpl):
    """The folder that is configured; others are not named after the sources."""

    _locator_classes = [UserProvidedCacheLocator]  # noqa: RUF012


class _Cache(FunctionCache):
    """What `numba.njit(cache=True)` has, but that does without when the disk is full."""

    _impl_class = _Place

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            super().save_overload(signature, data)
        except OSError as error:
            _warn(error)


def _warn(error: Exception) -> None:
    _log.warning("kernels are compiled at each start, their cache cannot be written: %s", error)


def _digest() -> str:
    """Of the sources of this package."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
