"""`radixgate explain`: where a prompt would go, and what each worker would cost."""

from radixgate.client import DEFAULT_ADDRESS
from radixgate.v1.gateway_pb2 import ExplainResponse
from rich.markup import escape
from rich.table import Table

from cli import options
from cli.calls import call
from cli.generate import Prompt, read_prompt
from cli.output import answers, compact_table, print_json, print_table, trust_label

_TEXTS = ("", "worker", "state")
_NUMBERS = ("held", "expected", "wait", "prefill", "interfere", "evict", "total", "free")


def explain(
    prompt: Prompt,
    *,
    model: options.Model = None,
    tenant: options.Tenant = None,
    salt: options.Salt = None,
    timeout: options.Timeout = 10.0,
    gateway: options.Gateway = DEFAULT_ADDRESS,
    as_json: options.Json = False,
) -> None:
    """Say where a prompt would go and why, without sending it."""
    text = read_prompt(prompt)
    found = call(
        gateway,
        lambda client: client.explain(text, model=model, tenant=tenant, salt=salt, timeout=timeout),
    )
    if as_json:
        print_json(found)
        return
    print_table(_table(found))
    answers.print(escape(found.reason), style="bold")


def _table(found: ExplainResponse) -> Table:
    title = f"{escape(found.model)} · {found.prompt_tokens} prompt tokens · costs in ms"
    table = compact_table(title, (*_TEXTS, *_NUMBERS), numbers=_NUMBERS)
    for candidate in found.candidates:
        costs = (
            candidate.wait_ms,
            candidate.prefill_ms,
            candidate.interfere_ms,
            candidate.evict_ms,
            candidate.total_ms,
        )
        table.add_row(
            "→" if candidate.chosen else "",
            escape(candidate.worker),
            trust_label(candidate),
            str(candidate.matched_tokens),
            str(candidate.expected_tokens),
            *(f"{cost:.1f}" for cost in costs),
            str(candidate.free_blocks),
            style="bold" if candidate.chosen else "",
        )
    return table
