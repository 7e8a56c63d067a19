"""What is on the dashboard."""

from functools import partial
from typing import Final

from deploy.dashboard.grafana import Panel
from deploy.dashboard.queries import (
    CACHED,
    MODEL,
    NAMESPACE,
    highest,
    now,
    quantiles,
    rate,
    share,
    total,
    worker_now,
    worker_quantiles,
    worker_rate,
)

Number = partial(Panel, width=4, number=True)
Quarter = partial(Panel, width=6)

FLEET: Final = [
    Number("Gateways", "none", "That serve metrics.", {"": f"count({now('info', NAMESPACE)})"}),
    Number(
        "Workers", "none", "That may be sent requests.", {"": total(highest("candidates", "model"))}
    ),
    Number(
        "Hit rate",
        "percentunit",
        "Share of prompt tokens that came from a cache.",
        {"": share("prompt_tokens_total", "", CACHED)},
    ),
    Number(
        "Time to first token, p90",
        "s",
        "From the arrival at the gateway.",
        {"": quantiles("time_to_first_token_seconds")["p90"]},
    ),
    Number("Waiting", "none", "Requests in gateways.", {"": total(now("queue_requests"))}),
    Number(
        "Circuits open",
        "none",
        "Workers that are left alone because they failed too often.",
        {"": total(highest("worker_circuit_open", "model, worker"))},
    ),
    Panel(
        "Calls by status",
        "reqps",
        "Of all clients and methods. UNAVAILABLE and INTERNAL are faults of ours.",
        {"{{code}}": rate("requests_total", "code", NAMESPACE)},
        stack="normal",
    ),
    Panel(
        "Workers by trust",
        "none",
        "How far their summaries are believed. Each gateway judges by itself; this is the average.",
        {"{{trust}}": total(f"avg by (model, worker, trust) ({now('worker_trust')})", "trust")},
        stack="normal",
    ),
    Panel(
        "Failures taken over",
        "cps",
        "Requests sent elsewhere before their first token (retries) or in mid-stream (migrations),"
        " asked of a second worker (hedges); workers left alone from now on (circuits opened).",
        {
            "retries": rate("retries_total"),
            "migrations": rate("migrations_total"),
            "hedges": rate("hedges_total"),
            "circuits opened": rate("circuits_opened_total"),
        },
    ),
    Quarter(
        "Workers of each model",
        "none",
        "That may be sent requests.",
        {"{{model}}": highest("candidates", "model")},
    ),
    Quarter(
        "Versions",
        "none",
        "Of what runs; more than one while an upgrade goes on.",
        {
            "gateway {{version}}": f"count by (version) ({now('info', NAMESPACE)})",
            "worker {{version}}": f"count by (version) (radixgate_worker_info{{{MODEL}}})",
        },
    ),
    Quarter(
        "Endpoints",
        "none",
        "Workers that Kubernetes names.",
        {"{{state}}": highest("discovery_endpoints", "state", NAMESPACE)},
    ),
    Quarter(
        "API server",
        "s",
        "Time since a gateway heard of it last.",
        {"{{instance}}": highest("discovery_age_seconds", "instance", NAMESPACE)},
    ),
]

HITS: Final = [
    Panel(
        "Prompt tokens by fate",
        "short",
        "evicted: more KV memory or workers would help. elsewhere: load kept a request from its"
        " cache. stale: a summary was wrong. new: nothing would.",
        {"{{fate}}": rate("prompt_tokens_total", "fate")},
        stack="percent",
        width=12,
    ),
    Panel(
        "Prompt tokens a second",
        "short",
        "The same, as they came.",
        {"{{fate}}": rate("prompt_tokens_total", "fate")},
        stack="normal",
        width=12,
    ),
    Panel(
        "Hit rate by worker",
        "percentunit",
        "Of the requests that each worker began.",
        {"{{worker}}": share("worker_prompt_tokens_total", "worker", CACHED)},
    ),
    Panel(
        "Expected and cached",
        "short",
        "Tokens a second that the chosen worker was expected to hold, and that it held.",
        {
            "expected": rate("predicted_cached_tokens_total"),
            "cached": rate("prompt_tokens_total", labels=f"{MODEL},{CACHED}"),
        },
    ),
    Panel(
        "Misses as workers see them",
        "short",
        "Tokens a second by whether the worker itself had them, and why not.",
        {"{{source}}": worker_rate("prompt_tokens_total", "source")},
        stack="normal",
    ),
]

TIME: Final = [
    Panel(
        "Time to first token",
        "s",
        "From the arrival at the gateway, as clients see it.",
        quantiles("time_to_first_token_seconds"),
    ),
    Panel(
        "Wait in the gateway",
        "s",
        "From the arrival to the turn at a worker.",
        quantiles("queue_seconds"),
    ),
    Panel(
        "Time at the worker, p90",
        "s",
        "The parts of the time to first token there.",
        {
            "queue": worker_quantiles("queue_seconds")["p90"],
            "prefill": worker_quantiles("prefill_seconds")["p90"],
            "both": worker_quantiles("time_to_first_token_seconds")["p90"],
        },
    ),
    Panel(
        "Between tokens",
        "s",
        "Of one stream, at the worker.",
        worker_quantiles("inter_token_latency_seconds"),
    ),
    Panel(
        "Speed of a stream",
        "short",
        "Tokens a second of one request after its first.",
        worker_quantiles("request_tokens_per_second"),
    ),
    Panel(
        "Tokens computed",
        "short",
        "A second, by all workers. Prefill is what no cache held, and what was preempted.",
        {"{{kind}}": worker_rate("computed_tokens_total", "kind")},
    ),
]

PRESSURE: Final = [
    Panel(
        "KV blocks",
        "short",
        "cached ones can be evicted, running and pinned ones cannot.",
        {"{{state}}": worker_now("kv_blocks", "state")},
        stack="percent",
    ),
    Panel(
        "Evictions",
        "short",
        "Blocks a second that made room, and tokens a second that were computed again for it.",
        {
            "blocks": worker_rate("evicted_blocks_total"),
            "tokens again": worker_rate("regret_tokens_total"),
        },
    ),
    Panel(
        "Regret",
        "percentunit",
        "Share of its time that a worker spends on what it had evicted.",
        {"{{worker}}": worker_rate("regret_seconds_total", "worker")},
    ),
    Panel(
        "Requests",
        "none",
        "That wait in gateways, wait at workers, and run.",
        {
            "in gateways": total(now("queue_requests")),
            "at workers": worker_now("requests_waiting"),
            "running": worker_now("requests_running"),
        },
        stack="normal",
    ),
    Panel(
        "Refused",
        "reqps",
        "late, expired: not in time. full: more wait than may. no_worker: none came in time.",
        {"{{model}} {{reason}}": rate("shed_total", "model, reason")},
        stack="normal",
    ),
    Panel(
        "Prompt tokens by tenant",
        "short",
        "A second, of requests that had their turn.",
        {"{{tenant}}": rate("entered_tokens_total", "tenant")},
        stack="normal",
    ),
    Panel(
        "Workers asked for",
        "none",
        "What autoscaling asks for, and what is there.",
        {
            "{{model}} desired": highest("scale_desired_workers", "model"),
            "{{model}} there": highest("candidates", "model"),
        },
    ),
    Panel(
        "Scaling signals",
        "none",
        "What the workers asked for come from.",
        {
            f"{{{{model}}}} {signal}": highest(f"scale_{signal}", "model")
            for signal in ("cache_pressure", "miss_rate", "queue_seconds", "kv_utilization")
        },
    ),
    Panel(
        "Backlog",
        "short",
        "Tokens that each worker still has to compute for what it accepted.",
        {"{{worker}}": worker_now("backlog_tokens", "worker")},
    ),
    Panel(
        "Preemptions",
        "cps",
        "Sequences that lost their blocks to another.",
        {"{{worker}}": worker_rate("preemptions_total", "worker")},
    ),
    Panel(
        "KV memory in use",
        "bytes",
        "Free blocks are not in it, cached ones are.",
        {"{{worker}}": worker_now("kv_used_bytes", "worker")},
    ),
    Panel(
        "Fragmentation",
        "percentunit",
        "Room in used blocks that holds no token.",
        {"{{worker}}": worker_now("kv_fragmentation_ratio", "worker")},
    ),
]

TRUST: Final = [
    Panel(
        "Promises kept",
        "percentunit",
        "Of the tokens that a worker's summary promised lately, the share that was there.",
        {"{{worker}}": f"min by (worker) ({now('worker_kept_ratio')})"},
    ),
    Panel(
        "Stale",
        "percentunit",
        "Share of promised tokens that were not there.",
        {
            "{{model}}": share(
                "prompt_tokens_total", "model", 'fate="stale"', 'fate=~"cached|stale"'
            )
        },
    ),
    Panel(
        "Doubts and repairs",
        "cps",
        "Workers asked for a snapshot, places found wrong, and summaries counted again.",
        {
            "doubts": rate("doubts_total"),
            "wrong {{place}}": rate("mismatches_total", "place"),
            "audits": rate("audits_total"),
        },
    ),
]

REDIS: Final = [
    Quarter(
        "Gateways with Redis",
        "none",
        "That can use it now.",
        {"{{job}}": total(now("redis_up", NAMESPACE), "job")},
    ),
    Quarter(
        "Lag of mirrors",
        "s",
        "From when an event was written to Redis to when a gateway took it.",
        {"{{instance}}": highest("mirror_lag_seconds", "instance")},
    ),
    Quarter(
        "Reservations",
        "cps",
        "dropped: gateways decide without knowing what the others have just decided.",
        {"{{fate}}": rate("reservations_total", "fate")},
    ),
    Quarter(
        "Prefixes in mirrors",
        "short",
        "Boundaries that each worker holds, as gateways know it.",
        {"{{worker}}": highest("mirror_boundaries", "worker")},
        stack="normal",
    ),
]

ROUTING: Final = [
    Panel(
        "Decision",
        "s",
        "Matching and pricing all candidates of one request.",
        quantiles("routing_seconds", NAMESPACE),
    ),
    Panel(
        "Tokenizing",
        "s",
        "Checking and tokenizing one request.",
        quantiles("tokenizing_seconds", NAMESPACE),
    ),
    Panel(
        "Routed to clients",
        "reqps",
        "What Route gave to clients, by how it ended. silent: the client told nothing.",
        {"{{end}}": rate("routed_total", "end")},
    ),
]

ROWS: Final = {
    "Fleet": FLEET,
    "Hits and misses": HITS,
    "Time": TIME,
    "Pressure": PRESSURE,
    "Trust": TRUST,
    "Redis": REDIS,
    "Routing": ROUTING,
}
