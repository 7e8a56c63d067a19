"""Writes down what happens to each request of a simulation."""

from collections import Counter
from typing import Any, Final

import numpy as np

from sim.request import Request
from sim.results import Floats, Ints, Requests
from sim.truth import Fates
from sim.worker.visit import Visit

NOBODY: Final = -1


class Recorder:
    """Args: how many `requests` are going to come, to so many `workers`."""

    def __init__(self, requests: int, workers: int) -> None:
        self.refusals: Counter[str] = Counter()
        self._times: dict[str, Floats] = {
            name: np.full(requests, np.nan)
            for name in ("arrived", "sent", "started", "first_token", "ended")
        }
        self._counts: dict[str, Ints] = {
            name: np.zeros(requests, np.int64)
            for name in ("prompt_tokens", *Fates._fields, "output_tokens", "preemptions")
        }
        self._worker = np.full(requests, NOBODY)
        self._workers = workers

    def arrived(self, request: Request, now: float) -> None:
        """At the gateway."""
        self._times["arrived"][request.number] = now
        self._counts["prompt_tokens"][request.number] = request.prompt.tokens

    def sent(self, number: int, worker: int, now: float) -> None:
        """By the gateway to a worker."""
        self._times["sent"][number] = now
        self._worker[number] = worker

    def refused(self, number: int, why: str) -> None:
        """Instead of being sent."""
        self._counts["new"][number] = self._counts["prompt_tokens"][number]
        self.refusals[why] += 1

    def started(self, number: int, fates: Fates, now: float) -> None:
        """By its worker."""
        self._times["started"][number] = now
        for name, tokens in zip(Fates._fields, fates, strict=True):
            self._counts[name][number] = tokens

    def first_token(self, number: int, now: float) -> None:
        """Its prompt is computed."""
        self._times["first_token"][number] = now

    def ended(self, visit: Visit, now: float) -> None:
        """Its last token is there."""
        number = visit.request.number
        self._times["ended"][number] = now
        self._counts["output_tokens"][number] = visit.request.output_tokens
        self._counts["preemptions"][number] = visit.preemptions

    def requests(self) -> Requests:
        """What there is of each request."""
        arrays: dict[str, Any] = {**self._times, **self._counts}
        return Requests(worker=self._worker, **arrays)

    def served(self) -> Ints:
        """Requests that each worker got."""
        return np.bincount(self._worker[self._worker != NOBODY], minlength=self._workers)
