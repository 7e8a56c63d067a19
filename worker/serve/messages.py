"""From the engine's events to the messages of a `Generate` stream."""

from collections.abc import Iterable, Iterator

from radixgate.v1 import generate_pb2
from radixgate.v1.generate_pb2 import GenerateResponse

from worker.engine.events import (
    Event,
    Expired,
    Failed,
    Finished,
    FinishReason,
    Output,
    Started,
)
from worker.kv.misses import Misses

REASONS = {
    FinishReason.STOP: generate_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: generate_pb2.FINISH_REASON_LENGTH,
}


def messages(
    events: Iterable[Event], request_id: str, worker: str
) -> Iterator[GenerateResponse | Failed | Expired]:
    """The stream's next messages, tokens that came together in one; bad ends are passed through."""
    outputs: list[Output] = []
    for event in events:
        if isinstance(event, Output):
            outputs.append(event)
            continue
        if outputs:
            yield _tokens(outputs)
            outputs = []
        match event:
            case Started(prompt_tokens, cached_tokens):
                started = generate_pb2.Started(
                    request_id=request_id,
                    worker=worker,
                    prompt_tokens=prompt_tokens,
                    cached_tokens=cached_tokens,
                )
                yield GenerateResponse(started=started)
            case Finished():
                yield GenerateResponse(finished=_finished(event))
            case Failed() | Expired():
                yield event
    if outputs:
        yield _tokens(outputs)


def _tokens(outputs: list[Output]) -> GenerateResponse:
    ids = [output.token for output in outputs]
    text = "".join(output.text for output in outputs)
    return GenerateResponse(tokens=generate_pb2.Tokens(ids=ids, text=text))


def _finished(event: Finished) -> generate_pb2.Finished:
    return generate_pb2.Finished(
        reason=REASONS[event.reason],
        stop=event.stop or "",
        prompt_tokens=event.prompt_tokens,
        cached_tokens=event.cached_tokens,
        output_tokens=event.output_tokens,
        queue_seconds=event.queue_seconds,
        ttft_seconds=event.ttft_seconds,
        total_seconds=event.total_seconds,
        preemptions=event.preemptions,
        misses=_misses(event.misses),
    )


def _misses(misses: Misses | None) -> generate_pb2.Misses | None:
    if misses is None:
        return None
    return generate_pb2.Misses(
        new_tokens=misses.new,
        evicted_tokens=misses.evicted,
        elsewhere_tokens=misses.elsewhere,
        diverges_at=misses.diverges,
    )
