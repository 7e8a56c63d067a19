"""`radixgate simulate` as people call it."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.conftest import Run, run
from tests.e2e.processes import wait_until

__all__ = ["run"]

FEW = "unique:requests=12,rate=5,seed=1"
CHATS = "chat:requests=30,rate=5,seed=1"


@pytest.fixture
def simulate(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `radixgate simulate` with a line of arguments, in this process alone."""

    def simulate(line: str) -> Any:
        arguments = shlex.split(line)
        monkeypatch.setattr(sys, "argv", ["radixgate", "simulate", *arguments])
        return run("simulate", "--jobs", "1", *arguments)

    return simulate


def document(simulate: Run, line: str) -> Any:
    result = simulate(f"{line} --json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_policies_are_compared_in_a_table(simulate: Run) -> None:
    result = simulate(f"--trace {CHATS} --workers 2 --policy cost,round_robin")
    assert result.exit_code == 0, result.stderr
    for expected in ("TTFT s", "hit", "ideal"):
        assert expected in result.stdout
    names = re.findall(r"^(cost|round_robin) .*\d", result.stdout, re.MULTILINE)
    tables = len(names) // 2
    assert tables
    assert names == ["cost", "round_robin"] * tables


def test_the_default_policies_are_ours_and_the_plainest(simulate: Run) -> None:
    found = document(simulate, f"--trace {FEW}")
    assert [each["policy"] for each in found["runs"]] == ["cost", "round_robin"]
    assert found["runs"][0]["workers"] == 8


def test_json_has_all_that_was_measured(simulate: Run) -> None:
    line = f"--trace {CHATS} --workers 2 --policy sglang"
    found = document(simulate, line)
    assert found["command"] == f"radixgate simulate {line} --json"
    (only,) = found["runs"]
    assert only["settings"] == {"workers": "2", "worker": "h100-llama-8b"}
    assert only["requests"] == 30
    assert only["refused"] == 0
    kinds = ("hit_rate", "stale", "elsewhere", "evicted", "new", "unserved")
    assert sum(only[kind] for kind in kinds) == pytest.approx(1)
    assert 0 < only["hit_rate"] <= only["ideal_hit_rate"] < 1
    assert set(only["ttft"]) == set(only["itl"]) == {"mean", "p50", "p90", "p99"}


def test_a_report_is_written(simulate: Run, tmp_path: Path) -> None:
    report = tmp_path / "a report.html"
    result = simulate(f"--trace {CHATS} --workers 2 --policy random --html '{report}'")
    assert result.exit_code == 0, result.stderr
    assert f"wrote {report}" in result.stderr
    page = report.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") or page.startswith("<!doctype html>")
    assert "random" in page
    assert f"--trace {CHATS}" in page


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("/none/report.html", "there is no directory"),
        ("", "it is a directory"),
        ("/locked/report.html", "that is not permitted"),
    ],
)
def test_a_report_that_cannot_be_written_is_refused_before_it_is_made(
    simulate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, said: str
) -> None:
    (tmp_path / "locked").mkdir()
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path / "locked")
    monkeypatch.setattr("sim.experiment.play", lambda *_: pytest.fail("it is simulated"))
    result = simulate(f"--trace {FEW} --policy random --html {tmp_path}{place}")
    assert result.exit_code == 2, result.output
    assert "the report cannot be written" in result.stderr
    assert said in result.stderr


def test_a_report_is_written_though_nobody_reads_the_table(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    read, write = os.pipe()
    os.close(read)
    command = [
        sys.executable, "-m", "cli.main", "simulate", "--jobs", "1", "--trace", FEW,
        "--policy", "random", "--html", report,
    ]  # fmt: skip
    try:
        subprocess.run(command, stdout=write, stderr=subprocess.DEVNULL, timeout=60, check=False)
    finally:
        os.close(write)
    assert report.exists()


def test_a_closed_loop_with_fixed_times(simulate: Run) -> None:
    line = f"--trace {CHATS} --workers 2 --policy round_robin --closed-loop 3 --service-ms 10"
    (only,) = document(simulate, line)["runs"]
    assert only["seconds"] == pytest.approx(30 / 3 * 0.0105, rel=0.01)


def test_a_load_is_a_share_of_what_workers_can_serve(simulate: Run) -> None:
    line = "--trace unique:requests=400,rate=5,seed=1 --workers 2 --policy round_robin"
    found = document(simulate, f"{line} --load 0.4,0.8")["runs"]
    assert [each["settings"]["load"] for each in found] == ["0.4", "0.8"]
    light, heavy = (each["seconds"] for each in found)
    assert light == pytest.approx(2 * heavy, rel=0.2)


def test_a_sweep_is_a_grid(simulate: Run, tmp_path: Path) -> None:
    report = tmp_path / "sweep.html"
    line = f"--trace {FEW} --policy cost --sweep 'workers=1..2 kv_format=none,int4'"
    found = document(simulate, line)["runs"]
    assert [(each["workers"], each["settings"]["kv_format"]) for each in found] == [
        (1, "none"), (1, "int4"), (2, "none"), (2, "int4")
    ]  # fmt: skip
    result = simulate(f"{line} --price 2 --html {report}")
    assert result.exit_code == 0, result.stderr
    assert "int4" in result.stdout
    assert "<svg" in report.read_text(encoding="utf-8")


def test_what_nobody_can_serve_is_refused_and_told(simulate: Run) -> None:
    (only,) = document(simulate, f"--trace {FEW} --policy random --kv-blocks 1")["runs"]
    assert only["refused"] == only["requests"] == 12
    (why,) = only["refusals"]
    assert "longer than the KV memory" in why
    assert simulate(f"--trace {FEW} --policy random --kv-blocks 1").exit_code == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "nothing to simulate: give a --trace"),
        ("--trace none.jsonl", "none.jsonl"),
        ("--trace chat:colour=red", "colour"),
        (f"--trace {FEW} --policy best", "policy 'best' is unknown"),
        (f"--trace {FEW} --policy cost,cost", "'cost' is named twice"),
        (f"--trace {FEW} --worker abacus", "worker 'abacus' is no preset and no file"),
        (f"--trace {FEW} --kv-format int3", "int3"),
        (f"--trace {FEW} --kv-blocks some", "kv_blocks 'some'"),
        (f"--trace {FEW} --eviction fifo", "eviction 'fifo'"),
        (f"--trace {FEW} --stride 50", "stride 50"),
        (f"--trace {FEW} --sweep workers=", "'workers=': write name=values"),
        (f"--trace {FEW} --sweep colour=red", "cannot be swept"),
        (f"--trace {FEW} --sweep ''", "--sweep is empty"),
        (f"--trace {FEW} --workers 4 --sweep workers=2..4", "workers is 4, and swept as well"),
        (f"--trace {FEW} --load ''", "--load is empty"),
        (f"--trace {FEW} --load 0.7,0.7", "error: 'load=0.7,0.7': more than once"),
        (f"--trace {FEW} --load much", "load 'much'"),
        (f"--trace {FEW} --service-ms inf", "inf is not finite"),
        (f"--trace {FEW} --slo-ttft-ms inf", "inf is not finite"),
        (f"--trace {FEW} --slo-itl-ms nan", "--slo-itl-ms"),
        (f"--trace {FEW} --price inf --sweep workers=2", "inf is not finite"),
        (f"--trace {FEW} --price 2", "give a --sweep"),
        (f"--trace {FEW} --out worker.json", "--out is where --calibrate writes"),
        (f"--trace {FEW} --gateway 127.0.0.1:1", "--gateway is of a worker to --calibrate"),
        (f"--trace {FEW} --closed-loop 10000000000", "--closed-loop"),
        (f"--trace {FEW} --load 0.5 --closed-loop 3", "a closed loop"),
        (f"--trace {FEW} --load 0.5 --speed 3", "leave out --speed"),
        (f"--trace {FEW} --load 0.5 --kv-blocks 1", "0 were served, too few"),
        (f"--trace {FEW} --first 1 --load 0.5", "half of it comes at once"),
        (f"--trace {FEW} --workers 0", "--workers"),
        (f"--trace {FEW} --slo-share 2", "--slo-share"),
        ("--calibrate 127.0.0.1:1", "say with --out where"),
    ],
)
def test_what_is_wrong_with_the_command_is_said(simulate: Run, line: str, said: str) -> None:
    result = simulate(line)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_a_bad_row_is_named_with_its_line(simulate: Run, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    row = '{"timestamp": 0, "input_length": 700, "output_length": 3, "hash_ids": [1, 2]}\n'
    path.write_text(row + row.replace("700", "-7"))
    result = simulate(f"--trace {path}")
    assert result.exit_code == 2
    assert "line 2" in result.stderr or f"{path}:2" in result.stderr


def descendants(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.slow
@pytest.mark.parametrize("blow", ["killed", "interrupted", "interrupted early", "terminated"])
def test_processes_end_with_the_command(blow: str) -> None:
    command = [
        sys.executable, "-m", "cli.main", "simulate", "--trace",
        "chat:requests=20000,rate=50,seed=1", "--policy", "cost,random", "--jobs", "2", "--json",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        busy = 0 if blow == "interrupted early" else 3
        wait_until(lambda: len(players(process, busy)) == 2, 60, "two processes simulate")
        family = descendants(process)
        if blow == "killed":
            players(process, busy)[0].kill()
        elif blow.startswith("interrupted"):
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.terminate()
        _, errors = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    expected = {"killed": 1, "terminated": 143}
    assert process.returncode == expected.get(blow, 130), errors
    assert "Traceback" not in errors
    if blow.startswith("interrupted"):
        assert errors.split() == ["interrupted"]
    if blow == "killed":
        assert "a process of the simulation was killed" in errors
    _, left = psutil.wait_procs(family, timeout=10)
    assert not left


def players(process: "subprocess.Popen[str]", busy: float) -> list[psutil.Process]:
    """Processes that are to simulate and have computed for so many seconds; with 3 they do."""
    found = []
    for each in descendants(process):
        try:
            if "spawn_main" in " ".join(each.cmdline()) and sum(each.cpu_times()[:2]) >= busy:
                found.append(each)
        except psutil.Error:
            continue
    return found
