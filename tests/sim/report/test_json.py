"""The document is valid JSON with fields that stay."""

import json
from typing import Any

from sim.report.json import document
from sim.summary import Slo, summarize
from tests.sim.runs import synthetic_run

SLO = Slo(ttft_seconds=0.6)


def written(**values: Any) -> dict[str, Any]:
    made = document([summarize(synthetic_run(**values), SLO)], SLO, "radixgate simulate …")
    return json.loads(json.dumps(made, allow_nan=False))


def test_fields_stay() -> None:
    made = written(policy="cost", settings={"workers": "4"})
    assert {name: value for name, value in made.items() if name != "runs"} == {
        "version": 1,
        "command": "radixgate simulate …",
        "slo": {"ttft_seconds": 0.6, "itl_seconds": 0.05, "share": 0.9},
    }
    (run,) = made["runs"]
    spread = {"mean": float, "p50": float, "p90": float, "p99": float}
    assert _types(run) == {
        "policy": str,
        "trace": str,
        "settings": {"workers": str},
        "gpus": int,
        "refusals": {},
        "wall_seconds": float,
        "workers": int,
        "requests": int,
        "refused": int,
        "busiest_rate": float,
        "seconds": float,
        "prompt_tokens": int,
        "output_tokens": int,
        "hit_rate": float,
        "stale": float,
        "elsewhere": float,
        "evicted": float,
        "new": float,
        "unserved": float,
        "ideal_hit_rate": float,
        "ttft": spread,
        "itl": spread,
        "good_share": float,
        "goodput": float,
        "request_imbalance": float,
        "busy_imbalance": float,
        "utilisation": float,
        "evicted_blocks": int,
        "preemptions": int,
    }


def _types(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _types(each) for name, each in value.items()}
    return type(value)


def test_numbers_are_those_of_the_summary() -> None:
    made, summary = written(seed=3), summarize(synthetic_run(seed=3), SLO)
    (run,) = made["runs"]
    assert (run["hit_rate"], run["ttft"]["p90"]) == (summary.hit_rate, summary.ttft.p90)


def test_what_is_endless_or_undefined_is_null() -> None:
    (refused,) = written(refused=1.0)["runs"]
    assert refused["ttft"] == {"mean": None, "p50": None, "p90": None, "p99": None}
    assert refused["refusals"] == {"full": 200}
    (empty,) = written(count=0)["runs"]
    assert (empty["requests"], empty["hit_rate"], empty["goodput"]) == (0, None, None)
