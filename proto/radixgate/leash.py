"""Child processes that the kernel ends with their parent, however that dies (on Linux)."""

import os
import sys
from typing import Final

# NOTE: run before the child becomes itself, since a fork that runs Python is not safe beside
# threads. PR_SET_PDEATHSIG (1) has it killed with its parent, which may be gone already.
_SCRIPT: Final = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def leashed(*command: str) -> list[str]:
    """What to start for `command`, whose first word is a path, to end with this process.

    Start it from the main thread: on Linux it is the starting thread whose end counts.
    """
    return [sys.executable, "-ISc", _SCRIPT, str(os.getpid()), *command]
