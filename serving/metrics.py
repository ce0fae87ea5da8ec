"""What `/metrics` tells Prometheus. Labels come from closed sets only: routes of ours, known methods, status codes, error
codes, bundles of the operator's; nothing that a client writes.

With several workers each writes its series to files in a folder that the supervisor made (`PROMETHEUS_MULTIPROC_DIR`), and
whichever worker is asked adds all of them up.
"""

import os
from collections import Counter as Tally

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

CONTENT_TYPE = CONTENT_TYPE_LATEST
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_METHODS = frozenset({"GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"})
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """One registry for each application, so that two in one process do not count each other's requests."""

    def __init__(self) -> None:
        self._shared = os.environ.get(FOLDER_VARIABLE)
        self.registry = registry = CollectorRegistry()
        if not self._shared:
            ProcessCollector(registry=registry)
        self._requests = Counter(
            "gaussport_requests", "Requests answered.", ["route", "method", "status"], registry=registry
        )
        self._request_seconds = Histogram(
            "gaussport_request_seconds", "Time from head to answer.", ["route"], buckets=_SECONDS, registry=registry
        )
        self._rejects = Counter(
            "gaussport_rejected_requests", "Requests answered with an error, by its code.", ["code"], registry=registry
        )
        self.in_flight = _gauge("gaussport_requests_in_flight", "Requests being answered.", registry)
        self.body_bytes = _gauge("gaussport_body_bytes", "Bytes of the bodies of requests in flight.", registry)
        self.images = Counter("gaussport_images", "Images by outcome.", ["model", "outcome"], registry=registry)
        self.decode_seconds = Histogram(
            "gaussport_decode_seconds", "Time to decode and prepare one image.", buckets=_SECONDS, registry=registry
        )
        self.loads = Counter("gaussport_model_loads", "Loads and reloads of models.", ["outcome"], registry=registry)
        self._batch_size = Histogram(
            "gaussport_batch_size", "Images in one run of the model.", ["model"], buckets=_SIZES, registry=registry
        )
        self._inference_seconds = Histogram(
            "gaussport_inference_seconds", "Time of one run of the model.", ["model"], buckets=_SECONDS, registry=registry
        )
        self._queue_seconds = Histogram(
            "gaussport_queue_seconds", "Time until a request's first batch.", ["model"], buckets=_SECONDS, registry=registry
        )
        self._tokens = Counter(
            "gaussport_text_tokens",
            "Tokens of texts that were answered, and tokens computed for them: the difference is padding.",
            ["model", "kind"],
            registry=registry,
        )
        self.streams = _gauge("gaussport_streams", "Open streams.", registry)
        self.stream_tokens = Counter("gaussport_stream_tokens", "Tokens of streams.", ["model"], registry=registry)
        self.sockets = _gauge("gaussport_sockets", "Open WebSockets.", registry)
        self.socket_messages = Counter(
            "gaussport_socket_messages",
            "Messages on WebSockets that were answered: ok, or the code of the error.",
            ["model", "outcome"],
            registry=registry,
        )
        self._queue_images = _gauge("gaussport_queue_images", "Images decoded or waiting.", registry, ["model"])
        self._model = _gauge(
            "gaussport_model_info", "Processes that serve this.", registry, ["model", "version", "provider"]
        )
        self._routes: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._serving: Tally[tuple[str, ...]] = Tally()

    def request(self, route: str, method: str, status: int, seconds: float, code: str) -> None:
        """Count one answered request; `route` is a route's template or `unmatched`, `code` an error's or empty."""
        facts = (route, method, status)
        if facts not in self._routes:  # to look a label up takes longer than to count
            known = method if method in _METHODS else "other"
            facts = (route, known, status)
            self._routes[facts] = self._requests.labels(route, known, str(status)), self._request_seconds.labels(route)
        requests, request_seconds = self._routes[facts]
        requests.inc()
        request_seconds.observe(seconds)
        if code:
            self.refused(code)

    def refused(self, code: str) -> None:
        """Count one error by its code."""
        self._rejects.labels(code).inc()

    def model(self, name: str, version: str, provider: str) -> "ModelSeries":
        """The series of a model that begins to serve."""
        facts = (name, version, provider)
        self._serving[facts] += 1
        self._model.labels(*facts).set(1)
        return ModelSeries(self, facts)

    def forget(self, facts: tuple[str, ...]) -> None:
        """One that served this has gone; a reload of the same version may still be there."""
        self._serving[facts] -= 1
        if self._serving[facts]:
            return
        del self._serving[facts]
        self._model.labels(*facts).set(0)
        if not self._shared:  # shared files cannot forget a series
            self._model.remove(*facts)

    def text(self) -> bytes:
        if not self._shared:
            return generate_latest(self.registry)
        everybody = CollectorRegistry()
        MultiProcessCollector(everybody, self._shared)  # type: ignore[no-untyped-call]
        return generate_latest(everybody)


class ModelSeries:
    """What one served model reports."""

    def __init__(self, metrics: Metrics, facts: tuple[str, ...]) -> None:
        name = facts[0]
        self._metrics, self._facts = metrics, facts
        self.queue_seconds = metrics._queue_seconds.labels(name)
        self._queue_images = metrics._queue_images.labels(name)
        self.images_ok = metrics.images.labels(name, "ok")
        self._sizes, self._seconds = metrics._batch_size.labels(name), metrics._inference_seconds.labels(name)

    def held(self, change: int) -> None:
        self._queue_images.inc(change)

    def text_tokens(self, tokens: int) -> None:
        """Of rows that were answered."""
        self._tokens("text").inc(tokens)

    def computed_tokens(self, tokens: int) -> None:
        """Of a batch, padding included."""
        self._tokens("computed").inc(tokens)

    def _tokens(self, kind: str) -> Counter:
        return self._metrics._tokens.labels(self._facts[0], kind)

    def batch(self, size: int, seconds: float) -> None:
        self._sizes.observe(size)
        self._seconds.observe(seconds)

    def forget(self) -> None:
        self._metrics.forget(self._facts)


def _gauge(name: str, help: str, registry: CollectorRegistry, labels: list[str] | None = None) -> Gauge:
    """A gauge whose sum over the living workers is meant."""
    return Gauge(name, help, labels or [], registry=registry, multiprocess_mode="livesum")
