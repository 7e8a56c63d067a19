"""Where compiled code is kept, so that a machine compiles it once.

numba itself looks at the file of a compiled function, not at those of what it calls. So the folder
is named after all of this package: whoever changes a kernel compiles anew.
"""

import hashlib
import logging
from pathlib import Path
from typing import Any

import numba
from radixgate.home import radixgate_home

config: Any = numba.config

_log = logging.getLogger(__name__)


def keep(*functions: Any) -> None:
    """Read what `functions`, compiled by numba, compile to from the cache, or write it there.

    In NUMBA_CACHE_DIR when that is set, else in `radixgate_home()`. Where it cannot be
    written, they are compiled again in each process, and a warning says so.
    """
    before, config.CACHE_DIR = config.CACHE_DIR, config.CACHE_DIR or str(_directory())
    try:
        for function in functions:
            function.enable_caching()
    except (OSError, RuntimeError) as error:
        warn(error)
    finally:
        config.CACHE_DIR = before


def warn(error: Exception) -> None:
    """Say that the cache cannot be written."""
    _log.warning("kernels are compiled at each start, their cache cannot be written: %s", error)


def _directory() -> Path:
    return radixgate_home() / "kernels" / _digest()


def _digest() -> str:
    """Of the sources of this package."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
