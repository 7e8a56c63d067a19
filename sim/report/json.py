"""Summaries for programs: one JSON document, whose fields keep their names and units.

Times are in seconds, shares between 0 and 1. JSON has no number for what is endless or undefined:
both are null. A percentile of the TTFT is null when so many requests were refused, or there are
none; other numbers when they are a quotient of nothing and nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sim.summary import Slo, Summary

VERSION = 1
"""Rises when a field changes its meaning or goes; new fields leave it as it is."""


def document(summaries: Sequence[Summary], slo: Slo, command: str) -> dict[str, Any]:
    """`version`, `command`, `slo`, and `runs` with the fields of `Summary`; see the module."""
    return {
        "version": VERSION,
        "command": command,
        "slo": asdict(slo),
        "runs": [_finite(asdict(summary)) for summary in summaries],
    }


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {name: _finite(each) for name, each in value.items()}
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
