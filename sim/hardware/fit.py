"""Step times from measured steps: the constants whose errors are the least.

Errors are parts of what was measured, so that steps of a millisecond count as much as those of a
second. Their sum is what is least, not that of their squares, so that measurements in which the
machine did something else do not pull. No constant is negative: what would be cannot be told, and
is 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, product
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.hardware.step_time import StepTime, StepWork

_Floats = NDArray[np.float64]
_CONSTANTS: Final = len(StepTime.__slots__)
_ROUNDS: Final = 30

# Smaller relative errors weigh alike.
_EXACT: Final = 1e-3


class Measured(NamedTuple):
    """Steps in a row. Args: the `work` of all of them together; how many `steps`; the `seconds`."""

    work: StepWork
    steps: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Args:
    step_time: with the constants that fit best.
    errors: for each measurement, how much longer the formula takes it to be, in parts of it.
    """

    step_time: StepTime
    errors: tuple[float, ...]

    @property
    def typical_error(self) -> float:
        """Half of the measurements are closer to the formula than that."""
        return float(np.median(np.abs(self.errors)))

    @property
    def worst_error(self) -> float:
        """None is further from it."""
        return float(np.max(np.abs(self.errors)))


def fit(measured: Sequence[Measured]) -> Fit:
    """The constants under which the relative errors have the least sum.

    Raises:
        ValueError: the measurements are too few, or have no prompts or no generations.
    """
    if len(measured) < _CONSTANTS:
        raise ValueError(
            f"{len(measured)} measurements do not tell {_CONSTANTS} constants; measure more"
        )
    for name, there in (
        ("prompts", any(each.work.prompt_tokens for each in measured)),
        ("generations", any(each.work.generations for each in measured)),
    ):
        if not there:
            raise ValueError(f"no measurement has {name}, so that what they take cannot be told")
    seconds = np.array([each.seconds for each in measured])
    rows = np.array([_row(each) for each in measured], dtype=np.float64) / seconds[:, None]
    constants = _least_errors(rows)
    return Fit(StepTime(*constants.tolist()), tuple((rows @ constants - 1).tolist()))


def _row(measured: Measured) -> tuple[float, ...]:
    """What each constant of `StepTime` is multiplied by, in their order."""
    work = measured.work
    return (
        measured.steps,
        work.prompt_tokens,
        work.pairs,
        work.generations,
        work.context_tokens,
    )


def _least_errors(rows: _Floats) -> _Floats:
    """The constants x for which the sum of |rows @ x - 1| is least.

    By least squares again and again, in which each row weighs the less the larger its error was.
    """
    weights = np.ones(len(rows))
    for _ in range(_ROUNDS):
        x = _least_squares(rows * weights[:, None], weights)
        weights = 1 / np.sqrt(np.maximum(np.abs(rows @ x - 1), _EXACT))
    return x


def _least_squares(rows: _Floats, target: _Floats) -> _Floats:
    """The x of no negative element for which `rows` [M, N] @ x is closest to `target` [M].

    The best x is also the best one that has its zeros where it has them, and few sets of zeros are
    possible, so all are tried that `StepTime` takes.
    """
    # NOTE: columns of one length, since pairs are millions where steps are ones.
    scale = np.maximum(np.linalg.norm(rows, axis=0), np.finfo(np.float64).tiny)
    best, closest = np.zeros(0), np.inf
    for x in _candidates(rows / scale, target):
        distance = float(np.linalg.norm(rows / scale @ x - target))
        if distance < closest:
            best, closest = x, distance
    constants: _Floats = best / scale
    return constants


def _candidates(rows: _Floats, target: _Floats) -> Iterator[_Floats]:
    """The closest x for each set of zeros, where no element is negative."""
    for positive in product((False, True), repeat=_CONSTANTS):
        step, prompt_token, _, generation, _ = positive
        if not (prompt_token and (step or generation)):
            continue
        columns = list(compress(range(_CONSTANTS), positive))
        x = np.zeros(_CONSTANTS)
        x[columns] = np.linalg.lstsq(rows[:, columns], target, rcond=None)[0]
        if (x[columns] > 0).all():
            yield x
