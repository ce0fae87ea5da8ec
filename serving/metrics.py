"""What `/metrics` tells Prometheus. Labels come from closed sets only: routes of ours, known methods, status codes,
models loaded at the start; nothing that a client writes."""

from collections.abc import Callable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST
_METHODS = frozenset({"GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"})
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """One registry for each application, so that two in one process do not count each other's requests."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "gaussport_requests", "Requests answered.", ["route", "method", "status"], registry=registry
        )
        self._request_seconds = Histogram(
            "gaussport_request_seconds", "Time from head to answer.", ["route"], buckets=_SECONDS, registry=registry
        )
        self.in_flight = Gauge("gaussport_requests_in_flight", "Requests being answered.", registry=registry)
        self.images = Counter("gaussport_images", "Images by outcome.", ["model", "outcome"], registry=registry)
        self.decode_seconds = Histogram(
            "gaussport_decode_seconds", "Time to decode and prepare one image.", buckets=_SECONDS, registry=registry
        )
        self._batch_size = Histogram(
            "gaussport_batch_size", "Images in one run of the model.", ["model"], buckets=_SIZES, registry=registry
        )
        self._inference_seconds = Histogram(
            "gaussport_inference_seconds", "Time of one run of the model.", ["model"], buckets=_SECONDS, registry=registry
        )
        self.queue_seconds = Histogram(
            "gaussport_queue_seconds", "Time until a request's first batch.", ["model"], buckets=_SECONDS, registry=registry
        )
        self._queue_images = Gauge("gaussport_queue_images", "Images decoded or waiting.", ["model"], registry=registry)
        self._model = Info("gaussport_model", "What is served and where it runs.", ["model"], registry=registry)

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answered request; `route` is a route's template or `unmatched`."""
        self._requests.labels(route, method if method in _METHODS else "other", str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def model(self, name: str, held: Callable[[], float], **facts: str) -> Callable[[int, float], None]:
        """Register a model; returns what its batcher reports every batch to."""
        self._model.labels(name).info(facts)
        self._queue_images.labels(name).set_function(held)
        sizes, seconds = self._batch_size.labels(name), self._inference_seconds.labels(name)

        def observe(size: int, took_s: float) -> None:
            sizes.observe(size)
            seconds.observe(took_s)

        return observe

    def text(self) -> bytes:
        return generate_latest(self.registry)
