"""What to simulate: from what a person asks for to the cases of an experiment."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sim.experiment import Case
from sim.hardware.asked import asked_setup
from sim.load import POLICY, busiest_rate, saturated_rate, saturating
from sim.policy.catalogue import CATALOGUE, policy
from sim.request import Trace
from sim.results import Run
from sim.setting import Setting
from sim.sweep import combinations
from sim.trace.formats import open_trace
from sim.trace.generate.spec import GENERATORS, generated, is_generated
from sim.values import PlanError, positive, whole

STRIDE: Final = 64
"""Tokens from one boundary to the next, where a trace does not tell prompts apart by more."""

MOST_WORKERS: Final = 10_000

MOST_BLOCKS: Final = 2**27
"""Of KV on all workers together, which are in memory, some 10 to 100 bytes each."""

MOST_DAYS: Final = 366
"""That a trace may take: workers report their load also while nothing comes."""

ALL: Final = "all"

RATE: Final = "requests_per_second"
"""What a load comes to, while the trace is busiest."""

DEFAULTS: Final = {"workers": "8", "worker": "h100-llama-8b"}
"""Of what a worker does not say."""

SWEPT: Final = {
    "workers": "how many there are",
    "worker": "a preset, or a file written by --calibrate",
    "kv_format": "of the preset",
    "eviction": "policy of the workers",
    "load": "share of what the workers can serve at most; empty keeps the times of the trace",
    "speed": "by which the times of the trace are divided",
    "kv_blocks": "blocks of each worker; empty as the worker says",
    "block_size": "tokens in a block",
    "max_running": "sequences of a worker at once",
    "token_budget": "tokens of one step",
    "chunk_ms": "by which prompts in one step delay its generations",
}
"""What a sweep may vary; and what there is to say of a run."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a person asks for.

    Args:
        values: for names in `SWEPT`, as text; those left out are as `DEFAULTS` or the worker says.
        sweep: as `sim.sweep` takes it, for other names.
        closed_loop, service_seconds, seed: as in `Setting`.
        stride: tokens from one boundary to the next; None is what the trace can tell apart, in
            whole blocks.
    """

    values: Mapping[str, str]
    sweep: Sequence[str] = ()
    closed_loop: int | None = None
    service_seconds: float | None = None
    stride: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Cases that differ by their policy alone.

    Args:
        trace: its place among the traces.
        setting: of workers and clients.
        load: that is wanted; None follows the times of the trace.
        busiest: rate of the trace, in requests a second, if a load is wanted.
        seconds: from the first request of the trace to the last, if its times count.
        speed: by which these are divided.
        labels: what distinguishes it, for people.
    """

    trace: int
    setting: Setting
    load: float | None
    busiest: float | None
    seconds: float
    speed: float
    labels: dict[str, str]

    @property
    def measured(self) -> tuple[int, Setting]:
        """Whose most is what the load is a share of: the trace and the setting."""
        return self.trace, self.setting

    def cases(self, policies: Iterable[str], saturated: float | None) -> list[Case]:
        """Args: the `policies`; the rate at which the workers are `saturated`, in requests a
        second, if a load is wanted.

        Raises:
            PlanError: the trace takes too long.
        """
        speed, labels = self.speed, self.labels
        if self.load is not None:
            assert saturated is not None
            assert self.busiest is not None
            rate = self.load * saturated
            speed = rate / self.busiest
            labels = {**labels, RATE: f"{rate:.3g}"}
        days = self.seconds / speed / 86_400
        if days > MOST_DAYS:
            raise PlanError(
                f"at speed {speed:.3g} the requests come within {days:,.0f} days, and {MOST_DAYS} "
                f"are the most; play the trace faster"
            )
        return [Case(self.trace, each, self.setting, speed, labels) for each in policies]


def policy_names(text: str) -> list[str]:
    """The names in `text`, with commas between them; `all` stands for all.

    Raises:
        PlanError: one is there twice.
        ValueError: there is no such policy.
    """
    names = [
        name for each in text.split(",") for name in (CATALOGUE if each == ALL else [each.strip()])
    ]
    for name in names:
        policy(name)
        if names.count(name) > 1:
            raise PlanError(f"policy {name!r} is named twice")
    return names


def read_traces(texts: Sequence[str], format_: str | None, first: int | None) -> list[Trace]:
    """Files, or what generators make; of each its `first` requests. Their names differ.

    Raises:
        PlanError: one is there twice, or nowhere; or `format_` is of none.
        TraceError: one cannot be read, or made.
    """
    for text in texts:
        if texts.count(text) > 1:
            raise PlanError(f"trace {text} is given twice")
    if format_ is not None and all(map(_is_made, texts)):
        raise PlanError(f"format {format_!r}: no trace is a file; leave out --format")
    traces = [_read_trace(text, format_) for text in texts]
    names = [trace.name for trace in traces]
    return [
        replace(
            trace if first is None else trace.first(first),
            name=text if names.count(trace.name) > 1 else trace.name,
        )
        for text, trace in zip(texts, traces, strict=True)
    ]


def groups(ask: Ask, traces: Sequence[Trace]) -> list[Group]:
    """All that is asked for.

    Raises:
        PlanError: a value is wrong, or does not fit another.
        SweepError: so is the sweep.
        ValueError: a preset, format or file of a worker is wrong; or a trace has no load.
    """
    found = combinations(ask.sweep, SWEPT)
    for name, value in ask.values.items():
        if not value:
            raise PlanError(f"{name} is empty: give a value, or leave it out")
        if name in found[0]:
            raise PlanError(f"{name} is {value}, and swept as well: leave out one of them")
    return [
        _group(ask, place, trace, {**DEFAULTS, **ask.values, **swept})
        for place, trace in enumerate(traces)
        for swept in found
    ]


def saturating_cases(groups: Iterable[Group]) -> list[Case]:
    """What is to be played first, where a load is wanted: it is a share of what these serve."""
    return [Case(trace, POLICY, saturating(setting)) for trace, setting in _measured(groups)]


def cases(groups: Sequence[Group], policies: Sequence[str], saturated: Sequence[Run]) -> list[Case]:
    """All that is asked for.

    Args: `groups` and `policies`; `saturated`, the runs of the `saturating_cases`.

    Raises:
        PlanError: a trace takes too long.
        ValueError: too little was served in one of these.
    """
    rates = dict(zip(_measured(groups), map(saturated_rate, saturated), strict=True))
    return [case for group in groups for case in group.cases(policies, rates.get(group.measured))]


def _measured(groups: Iterable[Group]) -> list[tuple[int, Setting]]:
    return list(dict.fromkeys(group.measured for group in groups if group.load is not None))


def _group(ask: Ask, place: int, trace: Trace, values: dict[str, str]) -> Group:
    setup = asked_setup(values, trace)
    workers = whole("workers", values["workers"], MOST_WORKERS)
    if workers * setup.num_blocks > MOST_BLOCKS:
        raise PlanError(
            f"kv_blocks: {workers:,} workers of {setup.num_blocks:,} have more than "
            f"{MOST_BLOCKS:,}, the most; take fewer or larger ones, or a shorter trace where "
            f"blocks are endless"
        )
    blocks = math.ceil(max(STRIDE, trace.block_tokens) / setup.block_size)
    stride = ask.stride or blocks * setup.block_size
    if stride % setup.block_size:
        raise PlanError(
            f"stride {stride}: boundaries lie between blocks of {setup.block_size} tokens; "
            f"choose a multiple, or leave out --stride"
        )
    load = positive("load", values["load"]) if values.get("load") else None
    if load is not None and ask.closed_loop is not None:
        raise PlanError("a closed loop keeps workers as busy as it can: leave out --load")
    if values.get("speed"):
        if load is not None:
            raise PlanError("a load sets how fast the trace comes: leave out --speed")
        if ask.closed_loop is not None:
            raise PlanError("a closed loop ignores the times of the trace: leave out --speed")
    return Group(
        trace=place,
        setting=Setting(
            setup=setup,
            workers=workers,
            stride=stride,
            seed=ask.seed,
            closed_loop=ask.closed_loop,
            service_seconds=ask.service_seconds,
        ),
        load=load,
        busiest=None if load is None else busiest_rate(trace),
        seconds=0.0 if ask.closed_loop is not None else trace.requests[-1].at,
        speed=positive("speed", values.get("speed") or "1"),
        labels={name: value for name, value in values.items() if value},
    )


def _read_trace(text: str, format_: str | None) -> Trace:
    if _is_made(text):
        return generated(text)
    if not Path(text).exists():
        raise PlanError(
            f"trace {text!r} is no file and no generator; generators: {', '.join(GENERATORS)}"
        )
    return open_trace(Path(text), format_)


def _is_made(text: str) -> bool:
    """Whether it is a generator; a file of that name comes first."""
    return is_generated(text) and not Path(text).exists()
