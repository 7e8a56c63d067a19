"""The Gateway service: what clients call.

The handlers are registered without response serializers for the streams, so that token messages
pass through as the bytes that the worker sent.
"""

from collections.abc import Callable
from typing import TypeAlias

import grpc
import grpc.aio
from grpc import StatusCode
from radixgate.calls import Calls
from radixgate.digest import SetDigest
from radixgate.limits import check_ttl
from radixgate.refused import RefusedError, invalid_argument
from radixgate.v1.gateway_pb2 import (
    DESCRIPTOR,
    ChatRequest,
    ExplainResponse,
    FinishRequest,
    FinishResponse,
    ListModelsRequest,
    ListModelsResponse,
    ListWorkersRequest,
    ListWorkersResponse,
    PinRequest,
    RouteRequest,
    RouteResponse,
    UnpinRequest,
    UnpinResponse,
)
from radixgate.v1.generate_pb2 import GenerateRequest, Pinned
from radixgate.v1.worker_pb2 import ModelCard

from gateway.fleet.discovery.discovered import Discovered
from gateway.fleet.fleet import Fleet
from gateway.fleet.worker import FleetWorker
from gateway.serve import views
from gateway.serve.answering import Answering, Context
from gateway.serve.choose import Chooser
from gateway.serve.dispatch import Dispatcher
from gateway.serve.lookaside import Lookaside
from gateway.serve.metrics import Metrics
from gateway.serve.models import Models
from gateway.serve.pins import Pins
from gateway.serve.prepare import Prepared, Preparer, check
from gateway.serve.queue import Times
from gateway.serve.queues import Queues
from gateway.summary.pool import Pools

SERVICE_NAME = DESCRIPTOR.services_by_name["Gateway"].full_name

Asked: TypeAlias = GenerateRequest | ChatRequest


class GatewayService:
    """Args: `pools`, `fleet` and `models`, what there is; `preparer`, `queues`, `chooser` and
    `dispatcher`, which serve requests; `lookaside`, for those whose clients call the worker
    themselves; `pins`, which keeps prompts; `calls`, those under way; `metrics`; what is
    `discovered`, if anything is to be; the fleet's `clock`.
    """

    def __init__(
        self,
        *,
        pools: Pools,
        fleet: Fleet,
        models: Models,
        preparer: Preparer,
        queues: Queues,
        chooser: Chooser,
        dispatcher: Dispatcher,
        lookaside: Lookaside,
        pins: Pins,
        calls: Calls,
        metrics: Metrics,
        discovered: Discovered | None,
        clock: Callable[[], float],
    ) -> None:
        self._pools = pools
        self._fleet = fleet
        self._models = models
        self._preparer = preparer
        self._chooser = chooser
        self._queues = queues
        self._dispatcher = dispatcher
        self._lookaside = lookaside
        self._pins = pins
        self._answering = Answering(calls, metrics).answer
        self._metrics = metrics
        self._discovered = discovered
        self._clock = clock

    def handlers(self) -> grpc.GenericRpcHandler:
        """All methods, for a server."""
        return grpc.method_handlers_generic_handler(
            SERVICE_NAME,
            {
                "Generate": grpc.unary_stream_rpc_method_handler(
                    self.generate, GenerateRequest.FromString
                ),
                "Chat": grpc.unary_stream_rpc_method_handler(self.chat, ChatRequest.FromString),
                "Route": grpc.unary_unary_rpc_method_handler(
                    self.route, RouteRequest.FromString, RouteResponse.SerializeToString
                ),
                "Finish": grpc.unary_unary_rpc_method_handler(
                    self.finish, FinishRequest.FromString, FinishResponse.SerializeToString
                ),
                "Explain": grpc.unary_unary_rpc_method_handler(
                    self.explain, RouteRequest.FromString, ExplainResponse.SerializeToString
                ),
                "Pin": grpc.unary_unary_rpc_method_handler(
                    self.pin, PinRequest.FromString, Pinned.SerializeToString
                ),
                "Unpin": grpc.unary_unary_rpc_method_handler(
                    self.unpin, UnpinRequest.FromString, UnpinResponse.SerializeToString
                ),
                "ListWorkers": grpc.unary_unary_rpc_method_handler(
                    self.list_workers,
                    ListWorkersRequest.FromString,
                    ListWorkersResponse.SerializeToString,
                ),
                "ListModels": grpc.unary_unary_rpc_method_handler(
                    self.list_models,
                    ListModelsRequest.FromString,
                    ListModelsResponse.SerializeToString,
                ),
            },
        )

    async def generate(self, request: GenerateRequest, context: Context) -> None:
        """Stream the continuation of a prompt."""
        async with self._answering("Generate", context):
            await self._stream(request, context)

    async def chat(self, request: ChatRequest, context: Context) -> None:
        """Stream the next message of a chat."""
        async with self._answering("Chat", context):
            await self._stream(request, context)

    async def route(self, request: RouteRequest, context: Context) -> RouteResponse:
        """Decide and reserve; the client calls the worker itself."""
        async with self._answering("Route", context):
            prepared, times = await self._arrive(_routed(request), context)
            # NOTE: the call ends with the decision, so its deadline is not that of the request.
            await self._queues.of(prepared.model).enter(prepared, times._replace(whole=False))
            return self._lookaside.route(prepared, request.without)

    async def finish(self, request: FinishRequest, context: Context) -> FinishResponse:
        """Hear how a routed request ended."""
        async with self._answering("Finish", context):
            return self._lookaside.finish(request)

    async def explain(self, request: RouteRequest, context: Context) -> ExplainResponse:
        """Say where a request would go, and why; reserve nothing."""
        async with self._answering("Explain", context):
            prepared = await self._prepare(_routed(request))
            without = self._lookaside.lives(prepared.model, request.without)
            estimates = self._chooser.estimates(prepared, without)
            barred = self._chooser.barred(prepared, without)
            return ExplainResponse(
                model=prepared.model,
                prompt_tokens=prepared.prompt.tokens,
                candidates=[
                    views.candidate(
                        estimate,
                        circuit=self._chooser.circuit(estimate.worker),
                        chosen=estimate is estimates[0],
                    )
                    for estimate in estimates + barred
                ],
                reason=views.reason(estimates, barred, prepared.prompt),
            )

    async def pin(self, request: PinRequest, context: Context) -> Pinned:
        """Keep a prompt's KV for some time."""
        async with self._answering("Pin", context):
            with invalid_argument():
                check_ttl(request.ttl_seconds)
            prepared = await self._prepare(_routed(request.prompt))
            return await self._pins.pin(prepared, request.ttl_seconds, context.time_remaining())

    async def unpin(self, request: UnpinRequest, context: Context) -> UnpinResponse:
        """Give up the pin of a prompt, wherever it is."""
        async with self._answering("Unpin", context):
            prepared = await self._prepare(_routed(request.prompt))
            return UnpinResponse(workers=await self._pins.unpin(prepared))

    async def list_workers(
        self, request: ListWorkersRequest, context: Context
    ) -> ListWorkersResponse:
        """All workers, or those of one model."""
        async with self._answering("ListWorkers", context):
            now, model = self._clock(), self._models.meant(request.model)
            workers = [
                views.worker_info(worker, self._summary(worker), self._chooser.circuit(worker), now)
                for worker in self._fleet
                if model in ("", worker.registration.model)
            ]
            if not model:
                workers += map(views.pod_info, self._fleet.unreported())
            found = self._discovered
            return ListWorkersResponse(
                workers=workers, discovery=views.discovery_info(found) if found else None
            )

    async def list_models(self, _: ListModelsRequest, context: Context) -> ListModelsResponse:
        """Models that have a worker."""
        async with self._answering("ListModels", context):
            cards = [self._fleet.card(model) for model in self._fleet.models()]
            return ListModelsResponse(
                models=[
                    views.model_info(
                        card,
                        aliases=self._models.aliases(card.model),
                        workers=len(self._fleet.workers(card.model)),
                        queue=self._queues.of(card.model),
                    )
                    for card in cards
                    if card is not None
                ]
            )

    async def _prepare(self, request: Asked) -> Prepared:
        """Make ready a request that waits for nobody."""
        check(request)
        return await self._tokenize(request, self._models.card(request.model))

    async def _tokenize(self, request: Asked, card: ModelCard) -> Prepared:
        with self._metrics.tokenizing_seconds.time():
            return await self._preparer.prepare(request, card)

    async def _arrive(self, request: Asked, context: Context) -> tuple[Prepared, Times]:
        """Make ready a request that may wait, also for a first worker."""
        times = self._queues.times(context.time_remaining())
        check(request)
        card = await self._queues.card(request.model, times)
        return await self._tokenize(request, card), times

    async def _stream(self, request: Asked, context: Context) -> None:
        prepared, times = await self._arrive(request, context)
        async with self._queues.of(prepared.model).turn(prepared, times):
            await self._dispatcher.stream(prepared, context.write, times)

    def _summary(self, worker: FleetWorker) -> SetDigest:
        pool = self._pools.find(worker.registration.model)
        summary = pool.mirror.get(worker.id) if pool else None
        return summary.digest if summary else SetDigest()


def _routed(request: RouteRequest) -> Asked:
    match request.WhichOneof("request"):
        case "generate":
            return request.generate
        case "chat":
            return request.chat
        case _:
            raise RefusedError(
                StatusCode.INVALID_ARGUMENT, "request: missing; set generate or chat"
            )
