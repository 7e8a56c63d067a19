"""Which model a request means, and the card that says how to tokenize for it."""

from collections.abc import Callable, Iterable, Mapping

from grpc import StatusCode
from radixgate.refused import RefusedError
from radixgate.v1.worker_pb2 import ModelCard

from gateway.fleet.fleet import Fleet


def parse_aliases(texts: Iterable[str]) -> dict[str, str]:
    """Models by their aliases, from texts of the form ALIAS=MODEL.

    Raises:
        ValueError: a text has another form, an alias has two meanings, or means another alias.
    """
    aliases: dict[str, str] = {}
    for text in texts:
        alias, _, model = (part.strip() for part in text.partition("="))
        if not (alias and model):
            raise ValueError(f"alias {text!r}: write ALIAS=MODEL, such as fast=SmolLM2-135M")
        if aliases.setdefault(alias, model) != model:
            raise ValueError(f"alias {alias!r} means {aliases[alias]!r} and {model!r}; give it one")
    for alias, model in aliases.items():
        if model in aliases:
            raise ValueError(
                f"alias {alias!r} means {model!r}, itself an alias; name {aliases[model]!r}"
            )
    return aliases


class Models:
    """Args: the workers there are, a `fleet`; models that are `known`, with workers or without;
    models by their `aliases`.
    """

    def __init__(
        self, fleet: Fleet, known: Callable[[], Iterable[str]], aliases: Mapping[str, str]
    ) -> None:
        self._fleet = fleet
        self._known = known
        self._aliases = aliases

    def resolve(self, name: str) -> str:
        """The model that `name` means: itself, what it is an alias of, or the only one there is
        when it is empty.

        Raises:
            RefusedError: INVALID_ARGUMENT, none is named where there are several; NOT_FOUND, there
                is no such model; FAILED_PRECONDITION, it is a model and an alias of another;
                UNAVAILABLE, there is none at all yet.
        """
        known = sorted(self._known())
        if not known:
            raise RefusedError(
                StatusCode.UNAVAILABLE, "no worker has registered at this gateway yet"
            )
        there_are = f"there are {', '.join(known)}"
        if name in self._aliases:
            return self._meant(name, known, there_are)
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

    def meant(self, name: str) -> str:
        """What `name` is an alias of, or itself, whatever is served."""
        return self._aliases.get(name, name)

    def aliases(self, model: str) -> list[str]:
        """Other names of `model`, sorted."""
        return sorted(alias for alias, meant in self._aliases.items() if meant == model)

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

    def _meant(self, alias: str, known: list[str], there_are: str) -> str:
        model = self._aliases[alias]
        if alias in known:
            raise RefusedError(
                StatusCode.FAILED_PRECONDITION,
                f"model {alias!r} is served, and at this gateway an alias of {model!r}; rename one",
            )
        if model not in known:
            raise RefusedError(
                StatusCode.NOT_FOUND,
                f"model {alias!r} is an alias of {model!r}, which is not served; {there_are}",
            )
        return model
