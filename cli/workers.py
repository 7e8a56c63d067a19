"""`radixgate workers`: who is there, how busy, and how full their KV cache is."""

from collections.abc import Iterable
from itertools import groupby

import typer
from radixgate.client import DEFAULT_ADDRESS
from radixgate.v1.gateway_pb2 import Listing, WorkerInfo
from radixgate.v1.sync_pb2 import Load
from rich.markup import escape
from rich.table import Table

from cli import options
from cli.calls import call
from cli.exits import ExitCode
from cli.output import answers, compact_table, notes, print_json, print_table, trust_label

BAR_CELLS = 10

_TEXTS = ("worker", "address", "state", "KV in use")
_POD = "pod"
_SILENT = "pods without a worker that reports"
_LISTING_STYLES = {Listing.LISTING_READY: "green", Listing.LISTING_GONE: "red"}
_NUMBERS = ("prefixes", "run", "wait", "prefill", "ITL")
_LEGEND = "KV: █ in use, ▒ cached, ░ free · prefill in tokens/s · ITL in ms"


def workers(
    *,
    model: options.Model = None,
    timeout: options.Timeout = 10.0,
    gateway: options.Gateway = DEFAULT_ADDRESS,
    as_json: options.Json = False,
) -> None:
    """List the workers; ends with exit code 3 when there is none."""
    found = call(gateway, lambda client: client.workers(model or "", timeout=timeout))
    if as_json:
        print_json(found)
    elif found:
        found.sort(key=lambda worker: (worker.model, worker.worker))
        for name, group in groupby(found, key=lambda worker: worker.model):
            print_table(_table(name, group))
        answers.print(_LEGEND, style="dim")
    else:
        notes.print(f"the gateway at {gateway} has no workers")
    if not any(worker.worker for worker in found):
        raise typer.Exit(ExitCode.UNAVAILABLE)


def _table(model: str, found: Iterable[WorkerInfo]) -> Table:
    rows = list(found)
    discovered = any(worker.listing for worker in rows)
    texts = (*_TEXTS, _POD) if discovered else _TEXTS
    table = compact_table(escape(model or _SILENT), (*texts, *_NUMBERS), numbers=_NUMBERS)
    for worker in rows:
        load = worker.load
        draining = "[yellow]draining[/]"
        pod = (_pod(worker),) if discovered else ()
        table.add_row(
            escape(worker.worker),
            escape(worker.address),
            draining if load.draining else trust_label(worker),
            kv_bar(load),
            *pod,
            str(worker.summary.count),
            str(load.running),
            str(load.waiting),
            _measured(load.prefill_tokens_per_second),
            _measured(load.itl_ms),
        )
    return table


def _pod(worker: WorkerInfo) -> str:
    """Its name, unless the worker has the same, and how it is listed, as rich markup."""
    listing = Listing.Name(worker.listing).removeprefix("LISTING_").lower().replace("_", " ")
    name = "" if worker.pod == worker.worker else f"{escape(worker.pod)} "
    return f"{name}[{_LISTING_STYLES.get(worker.listing, 'yellow')}]{listing}[/]"


def kv_bar(load: Load) -> str:
    """Blocks in use, cached and free as a bar, and the share that is not free, as rich markup."""
    if not load.total_blocks:
        return ""
    taken = load.total_blocks - load.free_blocks
    in_use_cells, taken_cells = (
        -(-blocks * BAR_CELLS // load.total_blocks)
        for blocks in (taken - load.cached_blocks, taken)
    )
    bar = "█" * in_use_cells + "▒" * (taken_cells - in_use_cells) + "░" * (BAR_CELLS - taken_cells)
    return f"[cyan]{bar}[/] {taken / load.total_blocks:4.0%}"


def _measured(value: float) -> str:
    """A rate, or a dash while nothing was measured."""
    return f"{value:.0f}" if value else "-"
