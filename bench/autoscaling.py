"""What autoscaling does for clients: a load that outgrows two workers' caches, and falls again.

    make bench-autoscaling

The scenario is `tests.kube.scaling`: the chart, installed by Helm into a cluster of processes, with
the HPA's algorithm and KEDA's part played by `tests.kube`. Prints JSON with the raw numbers, and
draws docs/autoscaling.svg. Takes twenty minutes.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import matplotlib

from tests.kube.load import Asked
from tests.kube.scaling import LEGS, SPEED, Record, ends, p90, play
from worker.model.pull import DEFAULT_MODEL, pull

matplotlib.use("svg")
from matplotlib import pyplot as plt

Points = tuple[list[float], list[float]]

PLOT = Path(__file__).parent.parent / "docs" / "autoscaling.svg"
SLICE_SECONDS = 20
BLUE, GREEN, ORANGE = "#0969da", "#1a7f37", "#bf8700"


def sliced(record: Record, value: Callable[[Sequence[Asked]], float]) -> Points:
    """`value` of what was asked in each slice of time, and the slices' middles, in seconds."""
    end = record.samples[-1].at
    slices = [
        (at + SLICE_SECONDS / 2, asked)
        for at in range(0, int(end), SLICE_SECONDS)
        if (asked := record.between(at, at + SLICE_SECONDS))
    ]
    return [at for at, _ in slices], [value(asked) for _, asked in slices]


def hit_rate(asked: Sequence[Asked]) -> float:
    return sum(each.cached_tokens for each in asked) / sum(each.prompt_tokens for each in asked)


def signal(record: Record, name: str) -> Points:
    """Where the gateway knew it."""
    known = [each for each in record.samples if name in each.signals]
    return [each.at for each in known], [each.signals[name] for each in known]


def draw(record: Record) -> None:
    figure, axes = plt.subplots(4, 1, figsize=(8, 9), sharex=True, layout="constrained")
    load, size, need, ttft = axes
    minutes = [each.at / 60 for each in record.samples]

    load.plot(minutes, [each.families for each in record.samples], color=BLUE)
    load.set_ylabel("prefixes\nasked for")

    size.step(minutes, [each.ready for each in record.samples], color=GREEN, where="post")
    size.step(minutes, [each.pods for each in record.samples], ":", color=GREEN, where="post")
    size.set_ylabel("workers\n(dotted: starting)")

    at, pressure = signal(record, "cache_pressure")
    need.plot([each / 60 for each in at], pressure, color=ORANGE, label="cache pressure")
    at, hits = sliced(record, hit_rate)
    need.plot([each / 60 for each in at], hits, color=BLUE, label="hit rate by tokens")
    need.axhline(1, color="#d0d7de", zorder=0)
    need.legend(frameon=False, loc="center right")
    need.set_ylabel("share")

    at, times = sliced(record, p90)
    ttft.plot([each / 60 for each in at], times, color=BLUE)
    ttft.set_ylabel("p90 time to\nfirst token, s")
    ttft.set_xlabel(f"minutes; Kubernetes' control loops run {SPEED:g} times as fast")
    for each in axes:
        each.set_ylim(bottom=0)
        each.spines[["top", "right"]].set_visible(False)
    plt.rcParams["svg.hashsalt"] = "radixgate"
    figure.savefig(PLOT, metadata={"Date": None})


def summary(record: Record) -> dict[str, Any]:
    """What the plot shows, in numbers."""
    phases, begin = {}, 0.0
    for name in LEGS:
        end = ends(name)
        asked = record.between(begin, end)
        phases[name] = {
            "seconds": end - begin,
            "requests": len(asked),
            "failed": sum(bool(each.error) for each in asked),
            "hit_rate": hit_rate(asked),
            "ttft_p90": p90(asked),
        }
        begin = end
    return {
        "phases": phases,
        "worst_ttft_p90": max(sliced(record, p90)[1]),
        "last_minute_of_rise_ttft_p90": p90(record.between(ends("rise") - 60, ends("rise"))),
        "sizes": record.sizes(),
        "left": record.left,
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        record = asyncio.run(play(Path(directory), pull(DEFAULT_MODEL)))
    draw(record)
    raw = {
        "asked": [asdict(each) for each in record.asked],
        "samples": [asdict(each) for each in record.samples],
    }
    json.dump(summary(record) | {"raw": raw}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
