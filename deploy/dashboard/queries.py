"""PromQL of the dashboard, from the names of metrics.

Everything stands on what gateways and workers serve and on no recording rule, so that the dashboard
works wherever they are scraped. A worker's series have no model: its info knows that.
"""

from typing import Final

NAMESPACE: Final = 'namespace=~"$namespace"'
MODEL: Final = 'namespace=~"$namespace",model=~"$model"'
CACHED: Final = 'fate="cached"'


def total(expression: str, by: str = "") -> str:
    """The sum, by labels if any are given."""
    return f"sum by ({by}) ({expression})" if by else f"sum({expression})"


def now(metric: str, labels: str = MODEL) -> str:
    """What gateways serve."""
    return f"radixgate_gateway_{metric}{{{labels}}}"


def highest(metric: str, by: str, labels: str = MODEL) -> str:
    """Of what each gateway of a release serves alike."""
    return f"max by (namespace, job, {by}) ({now(metric, labels)})"


def rate(metric: str, by: str = "", labels: str = MODEL) -> str:
    """A second, of all gateways."""
    return total(f"rate({now(metric, labels)}[$__rate_interval])", by)


def share(metric: str, by: str, part: str, whole: str = "") -> str:
    """How much of a counter is `part`, among what is `whole`; both are matchers."""
    whole = f"{MODEL},{whole}" if whole else MODEL
    return f"{rate(metric, by, f'{MODEL},{part}')} / {rate(metric, by, whole)}"


def worker_now(metric: str, by: str = "") -> str:
    """The sum of what workers serve."""
    return _of_workers(f"radixgate_worker_{metric}{{{NAMESPACE}}}", by)


def worker_rate(metric: str, by: str = "") -> str:
    """A second, of all workers."""
    return _of_workers(f"rate(radixgate_worker_{metric}{{{NAMESPACE}}}[$__rate_interval])", by)


def quantiles(histogram: str, labels: str = MODEL) -> dict[str, str]:
    """Of a histogram of the gateways, by legend."""
    return _quantiles(rate(f"{histogram}_bucket", "le", labels))


def worker_quantiles(histogram: str) -> dict[str, str]:
    """Of a histogram of the workers, by legend."""
    return _quantiles(worker_rate(f"{histogram}_bucket", "le"))


def _of_workers(expression: str, by: str) -> str:
    info = f"on (job, instance) group_left (model, worker) radixgate_worker_info{{{MODEL}}}"
    return total(f"{expression} * {info}", by)


def _quantiles(buckets: str) -> dict[str, str]:
    return {f"p{q}": f"histogram_quantile({q / 100}, {buckets})" for q in (50, 90, 99)}
