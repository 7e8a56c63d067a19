"""From what a person asks for to what is simulated; what is wrong with it is said."""

from pathlib import Path

import numpy as np
import pytest

from sim.hardware.asked import ENDLESS
from sim.hardware.presets import preset
from sim.hardware.setup_file import write_setup
from sim.load import saturating
from sim.plan import (
    STRIDE,
    Ask,
    Group,
    cases,
    groups,
    policy_names,
    read_traces,
    saturating_cases,
)
from sim.policy.catalogue import CATALOGUE
from sim.request import Request, Trace
from sim.sweep import SweepError
from sim.values import PlanError
from tests.sim.runs import synthetic_run
from tests.sim.small import asked, content, setup, trace

H100 = "h100-llama-8b"
PRESET = preset(H100, "none")
SMALL = trace(*(asked(at, float(at), [at]) for at in range(4)))
LINE = '{"timestamp": 0, "input_length": 700, "output_length": 3, "hash_ids": [1, 2]}\n'


def planned(*sweep: str, traces: tuple[Trace, ...] = (SMALL,), **values: str) -> list[Group]:
    """With two workers, unless their number is swept."""
    given = {"workers": "2", "worker": H100, **values}
    if any(axis.startswith("workers=") for axis in sweep) and "workers" not in values:
        del given["workers"]
    return groups(Ask(given, sweep), traces)


def wrong(*sweep: str, **values: str) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        planned(*sweep, **values)
    return str(caught.value)


def test_what_is_left_out_is_as_the_worker_says() -> None:
    (group,) = planned()
    assert group.setting.setup == PRESET
    assert (group.setting.workers, group.setting.closed_loop, group.speed) == (2, None, 1)
    assert group.labels == {"workers": "2", "worker": H100}


def test_who_says_nothing_of_workers_has_some() -> None:
    (group,) = groups(Ask({}), [SMALL])
    assert (group.setting.workers, group.setting.setup) == (8, PRESET)
    assert group.labels == {"workers": "8", "worker": H100}


def test_what_is_given_replaces_it() -> None:
    (group,) = planned(
        block_size="32", max_running="7", token_budget="99", chunk_ms="50", eviction="cost",
        kv_blocks="123", speed="2.5",
    )  # fmt: skip
    found = group.setting.setup
    assert (found.block_size, found.max_running, found.token_budget) == (32, 7, 99)
    assert (found.chunk_seconds, found.eviction, found.num_blocks) == (0.05, "cost", 123)
    (case,) = group.cases(["cost"], None)
    assert case.speed == 2.5
    assert case.labels["kv_blocks"] == "123"


def test_blocks_of_another_size_hold_as_many_tokens() -> None:
    (group,) = planned(block_size="64")
    assert group.setting.setup.num_blocks == PRESET.kv_tokens // 64


def test_endless_memory_holds_all_sequences_of_the_trace() -> None:
    long = trace(asked(0, 0.0, [1] * 5, output_tokens=13), asked(1, 0.0, [2], output_tokens=12))
    (group,) = planned(traces=(long,), kv_blocks=ENDLESS)
    assert group.setting.setup.num_blocks == (3 + 1) + (1 + 1)


def test_a_worker_is_a_preset_in_a_format_or_a_file(tmp_path: Path) -> None:
    (group,) = planned(kv_format="int4")
    assert group.setting.setup == preset(H100, "int4")
    measured = tmp_path / "measured.json"
    write_setup(measured, setup(77), {})
    (group,) = planned(worker=str(measured))
    assert group.setting.setup == setup(77)
    assert "was measured in one of its own" in wrong(worker=str(measured), kv_format="int8")
    for text in ("{}", "no JSON"):
        measured.write_text(text)
        said = wrong(worker=str(measured))
        assert said.startswith(f"worker {measured}: ")
        assert f"presets: {H100}, " in said
    assert "is no preset and no file" in wrong(worker=str(tmp_path))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"workers": "0"}, "workers '0': wanted is a whole number, 1 to"),
        ({"workers": "two"}, "workers 'two': wanted is a whole number"),
        ({"workers": "2.5"}, "workers '2.5': wanted is a whole number"),
        ({"kv_blocks": "many"}, "kv_blocks 'many': wanted is a whole number"),
        ({"workers": "10001"}, "workers '10001': wanted is a whole number, 1 to 10,000"),
        ({"workers": "9" * 5000}, "wanted is a whole number, 1 to 10,000"),
        ({"max_running": str(2**31)}, "wanted is a whole number, 1 to 2,147,483,647"),
        ({"kv_blocks": str(2**24 + 1)}, "hold 268,435,472 tokens; 268,435,456 are the most"),
        ({"kv_blocks": "100000000000"}, "kv_blocks '100000000000': wanted is a whole number, 1 to"),
        ({"workers": "9000", "kv_blocks": "99999"}, "9,000 workers of 99,999 have more than"),
        ({"block_size": "100000000"}, "tokens, and for no such block"),
        ({"block_size": "-16"}, "block_size '-16': wanted is a whole number"),
        ({"max_running": "0"}, "max_running '0': wanted is a whole number"),
        ({"token_budget": "x"}, "token_budget 'x': wanted is a whole number"),
        ({"chunk_ms": "0"}, "chunk_ms '0': wanted is a number above 0"),
        ({"chunk_ms": "nan"}, "chunk_ms 'nan': wanted is a number above 0"),
        ({"speed": "inf"}, "speed 'inf': wanted is a number above 0"),
        ({"speed": "fast"}, "speed 'fast': wanted is a number above 0"),
        ({"load": "-1"}, "load '-1': wanted is a number above 0"),
        ({"load": "0.7", "speed": "2"}, "load sets how fast the trace comes: leave out --speed"),
        ({"kv_blocks": ""}, "kv_blocks is empty: give a value"),
        ({"eviction": "fifo"}, "eviction 'fifo': there are lru, cost"),
        ({"worker": "abacus"}, "worker 'abacus' is no preset and no file; presets: "),
        ({"kv_format": "int3"}, "int3"),
        ({"max_running": "50", "token_budget": "49"}, "max_running 50: a step of token_budget 49"),
    ],
)
def test_a_wrong_value_is_said(values: dict[str, str], said: str) -> None:
    assert said in wrong(**values)


@pytest.mark.parametrize("values", [{"load": "0.7"}, {"speed": "2"}])
def test_a_closed_loop_has_no_times(values: dict[str, str]) -> None:
    ask = Ask({"workers": "1", "worker": H100, **values}, closed_loop=4)
    with pytest.raises(PlanError, match="a closed loop"):
        groups(ask, [SMALL])


def test_every_trace_meets_every_combination() -> None:
    found = planned("workers=1..3", "kv_format=none,int8", traces=(SMALL, SMALL.first(2)))
    assert [(each.trace, each.setting.workers, each.labels["kv_format"]) for each in found] == [
        (at, count, name) for at in (0, 1) for count in (1, 2, 3) for name in ("none", "int8")
    ]
    assert found[1].setting.setup == preset(H100, "int8")


def test_what_is_swept_is_not_given_and_its_values_are_checked_alike() -> None:
    assert [each.setting.workers for each in planned("workers=4,5")] == [4, 5]
    assert wrong("workers=4,5", workers="9") == (
        "workers is 9, and swept as well: leave out one of them"
    )
    assert "workers '0'" in wrong("workers=0..2")
    with pytest.raises(SweepError, match="'colour' cannot be swept"):
        planned("colour=red")


def test_a_load_is_a_share_of_what_the_workers_can_serve() -> None:
    light, heavy = planned("load=0.5,2")
    assert (light.busiest, heavy.busiest) == (1.0, 1.0)
    assert [each.cases(["cost"], 8.0)[0].speed for each in (light, heavy)] == [4.0, 16.0]
    at_once = trace(*(asked(at, 0.0, [at]) for at in range(4)))
    with pytest.raises(ValueError, match="half of it comes at once"):
        planned("load=0.5", traces=(at_once,))


def test_a_trace_does_not_take_years() -> None:
    with pytest.raises(PlanError, match=r"at speed 9e-08 the requests come within 386 days"):
        cases(planned(speed="9e-8"), ["random"], [])
    (slow,) = planned("load=1e-8")
    with pytest.raises(PlanError, match="366 are the most; play the trace faster"):
        slow.cases(["random"], 1.0)
    closed = groups(Ask({}, closed_loop=1), [trace(asked(0, 0.0, [1]), asked(1, 1e9, [2]))])
    assert len(cases(closed, ["random"], [])) == 1


def test_what_workers_serve_at_most_is_found_once_for_each_trace_and_setting() -> None:
    found = planned("workers=1,2", "load=0.5,2", traces=(SMALL, SMALL.first(2)))
    first = saturating_cases(found)
    assert [(case.trace, case.setting) for case in first] == [
        (at, saturating(each.setting)) for at in (0, 1) for each in found[:4:2]
    ]
    assert {case.policy for case in first} == {"cost"}
    rates = [1.0, 2.0, 4.0, 8.0]
    runs = [synthetic_run(count=40) for _ in rates]
    for run, rate in zip(runs, rates, strict=True):
        run.requests.ended[:] = np.arange(40) / rate
    second = cases(found, ["random", "session"], runs)
    assert [(case.trace, case.setting, case.policy) for case in second] == [
        (each.trace, each.setting, name) for each in found for name in ("random", "session")
    ]
    assert [case.speed for case in second[::2]] == [
        share * rate for rate in rates for share in (0.5, 2.0)
    ]
    assert saturating_cases(planned()) == []
    assert [case.speed for case in cases(planned(), ["random"], [])] == [1.0]


def test_boundaries_are_as_far_apart_as_the_trace_needs() -> None:
    def stride(block_tokens: int, block_size: str = "16", asked_for: int | None = None) -> int:
        ask = Ask({"workers": "1", "worker": H100, "block_size": block_size}, stride=asked_for)
        alone = trace(Request(0, 0.0, content([1], block_tokens=block_tokens), 1))
        return groups(ask, [alone])[0].setting.stride

    assert stride(1) == stride(16) == STRIDE
    assert stride(512) == 512
    assert stride(1, "128") == 128
    assert (stride(1, "48"), stride(512, "48"), stride(512, "1024")) == (96, 528, 1024)
    assert stride(512, asked_for=48) == 48
    with pytest.raises(PlanError, match="stride 50: boundaries lie between blocks of 16 tokens"):
        stride(1, asked_for=50)


def test_policies_are_named_once_and_known() -> None:
    assert policy_names("cost, round_robin,cost:wait=0.5") == [
        "cost", "round_robin", "cost:wait=0.5"
    ]  # fmt: skip
    assert policy_names("all") == list(CATALOGUE)
    with pytest.raises(PlanError, match="'cost' is named twice"):
        policy_names("all,cost")
    for text in ("", "best", "cost,,random", "cost:wait=much", "random:wait=1"):
        with pytest.raises(ValueError, match="policy"):
            policy_names(text)


def test_a_trace_is_a_file_or_generated(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(LINE * 3)
    chats = "unique:requests=5,seed=1"
    found = read_traces([str(path), chats], None, None)
    assert [(each.name, len(each.requests)) for each in found] == [("trace.jsonl", 3), (chats, 5)]
    (first,) = read_traces([str(path)], "mooncake", 2)
    assert len(first.requests) == 2
    assert read_traces([str(path), chats], "mooncake", None) == found
    with pytest.raises(PlanError, match="format 'mooncake': no trace is a file"):
        read_traces([chats], "mooncake", None)
    with pytest.raises(PlanError, match=r"'chta:seed=1' is no file and no generator; .*: shared, "):
        read_traces(["chta:seed=1"], None, None)
    for text in (str(tmp_path / "none.jsonl"), "unique:colour=red"):
        with pytest.raises(ValueError, match=r"none\.jsonl|colour"):
            read_traces([text], None, None)


def test_traces_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [str(tmp_path / each / "trace.jsonl") for each in ("monday", "tuesday")]
    for each in paths:
        Path(each).parent.mkdir()
        Path(each).write_text(LINE)
    assert [each.name for each in read_traces(paths, None, None)] == paths
    with pytest.raises(PlanError, match="is given twice"):
        read_traces([paths[0]] * 2, None, None)
