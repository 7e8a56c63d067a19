"""Which model a request means, and the card that says how to tokenize for it."""

from collections.abc import Callable, Iterable

from grpc import StatusCode
from radixgate.refused import RefusedError
from radixgate.v1.worker_pb2 import ModelCard

from gateway.fleet.fleet import Fleet


class Models:
    """Args: the workers there are, a `fleet`; models that are `known`, with workers or without."""

    def __init__(self, fleet: Fleet, known: Callable[[], Iterable[str]]) -> None:
        self._fleet = fleet
        self._known = known

    def resolve(self, name: str) -> str:
        """The model that `name` means: itself, or the only one there is when it is empty.

        Raises:
            RefusedError: INVALID_ARGUMENT, none is named where there are several; NOT_FOUND, there
                is no such model; UNAVAILABLE, there is none at all yet.
        """
        known = sorted(self._known())
        if not known:
            raise RefusedError(
                StatusCode.UNAVAILABLE, "no worker has registered at this gateway yet"
            )
        there_are = f"there are {', '.join(known)}"
        if name:
            if name not in known:
                raise RefusedError(
                    StatusCode.NOT_FOUND, f"model {name!r} is not served; {there_are}"
                )
            return name
        meant = self._fleet.models() or known
        if len(meant) > 1:
            raise RefusedError(StatusCode.INVALID_ARGUMENT, f"model: not named, and {there_are}")
        return meant[0]

    def card(self, name: str) -> ModelCard:
        """The card of the model that `name` means.

        Raises:
            RefusedError: as `resolve`; UNAVAILABLE, it has no worker that can be used now.
        """
        model = self.resolve(name)
        card = self._fleet.card(model)
        if card is None:
            workers = "; ".join(
                f"{worker.id}: {worker.problem or 'its model card is being checked'}"
                for worker in self._fleet.workers(model)
            )
            raise RefusedError(
                StatusCode.UNAVAILABLE,
                f"model {model!r} has no worker now{': ' if workers else ''}{workers}",
            )
        return card
