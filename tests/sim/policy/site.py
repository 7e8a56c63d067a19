"""A site without workers: what a policy does there is written down, and tests tell it the rest."""

from collections.abc import Callable, Iterable
from random import Random

from radixgate.digest import SetDigest
from radixgate.namespace import NamespaceSeed
from radixgate.prefix import PrefixHash, pack_tokens

from gateway.route.router import Prompt
from sim.policy.base import Choice, Job, Place, Policy
from worker.kv.events import Change, Reason

STRIDE = 4


class FakeSite:
    """Attributes: `sent`, each job's number with the choice for it; `refused`, numbers."""

    def __init__(self, workers: int = 3, seed: int = 0) -> None:
        self.places = [Place(f"w{index}", 1000, 2, 8) for index in range(workers)]
        self.stride = STRIDE
        self.rng = Random(seed)
        self.now = 0.0
        self.sent: list[tuple[int, Choice]] = []
        self.refused: list[int] = []

    def send(self, job: Job, choice: Choice) -> None:
        self.sent.append((job.number, choice))

    def refuse(self, job: Job, why: str) -> None:
        self.refused.append(job.number)

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        raise AssertionError("no policy of others waits")


class Client:
    """Sends texts by a policy: each letter stands for one stride of tokens."""

    def __init__(self, policy: Policy, site: FakeSite) -> None:
        self.policy, self.site = policy, site
        self.jobs: list[Job] = []

    def send(self, text: str, extra: int = 0, session: str = "") -> Choice:
        """The choice for `text` and `extra` tokens beyond its last boundary."""
        prompt = prompt_of(text, extra)
        job = Job(len(self.jobs), prompt, session, "", 0, self.site.now)
        self.jobs.append(job)
        self.policy.arrived(job)
        number, choice = self.site.sent[-1]
        assert number == job.number
        return choice

    def end(self, number: int, *, decode_seconds: float = 0.0) -> None:
        """Job `number` gets its first token, and so much later its last."""
        self.first_token(number)
        self.site.now += decode_seconds
        self.policy.ended(self.jobs[number], self.worker(number))

    def first_token(self, number: int) -> None:
        """Job `number` gets its first token."""
        self.policy.first_token(self.jobs[number], self.worker(number))

    def worker(self, number: int) -> str:
        """Where job `number` went."""
        return self.site.sent[number][1].worker


def prompt_of(text: str, extra: int = 0) -> Prompt:
    tokens = [ord(letter) for letter in text for _ in range(STRIDE)]
    return Prompt(pack_tokens([*tokens, *[0] * extra]), STRIDE, NamespaceSeed(0))


def change(stored: Iterable[PrefixHash] = (), evicted: Iterable[PrefixHash] = ()) -> Change:
    return Change(1, list(stored), {Reason.CAPACITY: list(evicted)}, SetDigest())
