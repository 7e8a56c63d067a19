"""Where what is kept between runs lies: models, logs, compiled kernels."""

import os
from pathlib import Path

HOME_VARIABLE = "RADIXGATE_HOME"


def radixgate_home() -> Path:
    """`$RADIXGATE_HOME`, or `~/.cache/radixgate`."""
    configured = os.environ.get(HOME_VARIABLE)
    return Path(configured) if configured else Path.home() / ".cache" / "radixgate"
