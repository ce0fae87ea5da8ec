"""OpenTelemetry spans, one for each request and one for each of its steps, exported by OTLP. Off unless an endpoint is set:
then nothing of OpenTelemetry is imported and the steps cost one call that does nothing."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

from gaussport import __version__
from gaussport.errors import UsageError

_SPAN = "gaussport.span"
_NOTHING = nullcontext()


class Tracing:
    """No tracing. `OpenTelemetry` is the other kind."""

    def request(self, scope: Scope, request_id: str) -> AbstractContextManager[None]:
        """Around all of a request."""
        return _NOTHING

    def steps(self, scope: Scope, **seconds: float) -> None:
        """The steps of a request and how long each took, told afterwards: they ran one after another and the last of them
        ended just now."""

    def shutdown(self) -> None:
        """Send what is not sent yet."""


class OpenTelemetry(Tracing):
    """Spans through any tracer provider of the OpenTelemetry SDK."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._trace = trace
        self._provider = provider
        self._tracer = provider.get_tracer("gaussport", __version__)
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def request(self, scope: Scope, request_id: str) -> Iterator[None]:
        """A server span, child of the client's `traceparent` if it sent one."""
        parent = self._propagator.extract(dict(Headers(scope=scope)))
        method = scope["method"] if scope["method"].isalpha() else "_OTHER"
        attributes = {"http.request.method": method, "gaussport.request_id": request_id}
        kind = self._trace.SpanKind.SERVER
        with self._tracer.start_as_current_span(method, parent, kind, attributes) as span:
            scope[_SPAN] = span
            yield
            route = getattr(scope.get("route"), "path", "unmatched")
            span.update_name(f"{method} {route}")
            span.set_attribute("http.route", route)
            if code := scope.get("gaussport.code"):
                span.set_attribute("error.type", code)

    def steps(self, scope: Scope, **seconds: float) -> None:
        end_ns = time.time_ns()
        context = self._trace.set_span_in_context(scope[_SPAN])
        for name, took_s in reversed(seconds.items()):
            start_ns = end_ns - int(took_s * 1e9)
            self._tracer.start_span(name, context, start_time=start_ns).end(end_ns)
            end_ns = start_ns

    def shutdown(self) -> None:
        self._provider.shutdown()


def tracing_to(endpoint: str | None) -> Tracing:
    """Tracing to an OTLP collector over HTTP. UsageError when the packages for it are not installed."""
    if endpoint is None:
        return Tracing()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise UsageError("--otel-endpoint needs OpenTelemetry: pip install 'gaussport[otel]'") from error
    provider = TracerProvider(resource=Resource.create({"service.name": "gaussport", "service.version": __version__}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")))
    return OpenTelemetry(provider)
