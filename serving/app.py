"""The FastAPI application of some bundles: what is behind the front door, put together."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import Response

from gaussport import __version__
from gaussport.models.image.decode import ImageLimits
from gaussport.serving import classify, errors, reference_pages
from gaussport.serving.api_keys import ApiKeys, RequireKey
from gaussport.serving.body_limit import BodyLimit
from gaussport.serving.cores import usable_cores
from gaussport.serving.decoding import Decoder
from gaussport.serving.explain import route as explain
from gaussport.serving.explain import site
from gaussport.serving.explain.queue import ExplainQueue
from gaussport.serving.fast_routes import FastRoutes, routes_of
from gaussport.serving.layers import Layered
from gaussport.serving.metrics import CONTENT_TYPE, Metrics
from gaussport.serving.openapi import ERRORS, require_key_in
from gaussport.serving.repository import Repository
from gaussport.serving.request_scope import RequestScope
from gaussport.serving.served_models import ServedModels
from gaussport.serving.settings import Settings
from gaussport.serving.streams import routes as stream_routes
from gaussport.serving.streams import socket as stream_sockets
from gaussport.serving.streams.registry import Streams
from gaussport.serving.tracing import Tracing, tracing_to
from gaussport.serving.v2 import routes as v2


def build_app(paths: Sequence[Path], settings: Settings | None = None, tracing: Tracing | None = None) -> FastAPI:
    """The application for these bundles and models directories, which it loads when it starts.

    `app.state.models` lets the server watch the loading, lower readiness and drain; `app.state.keys` read the keys again;
    `app.state.refused` counts what a connection refuses by itself.
    """
    settings = settings or Settings()
    metrics = Metrics()
    models = ServedModels(Repository(paths), settings, metrics)
    limits = ImageLimits(settings.max_pixels, settings.max_side_ratio, settings.still_only)
    decoder = Decoder(settings.decode_threads or max(1, usable_cores() // settings.workers), limits, metrics)
    tracing = tracing or tracing_to(settings.otel_endpoint)
    explanations = ExplainQueue(settings.explain_queue)
    streams = Streams(settings, metrics)
    keys = ApiKeys(settings.api_keys, settings.api_keys_file)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if not models.begun:  # our server has begun, to answer probes meanwhile; another one waits here
            await models.load_all()
        try:
            yield
        finally:
            streams.close_all()
            await models.close()
            explanations.close()
            decoder.pool.shutdown(wait=False, cancel_futures=True)
            tracing.shutdown()

    app = Layered(
        title="gaussport",
        version=__version__,
        summary="Gaussian-attention classifiers over HTTP",
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        responses=ERRORS,
    )
    app.state.models, app.state.keys, app.state.refused = models, keys, metrics.refused
    errors.install(app)
    faces = (
        classify.routes(models, decoder, metrics, tracing, settings.max_images),
        v2.routes(models, decoder, tracing, settings),
    )
    app.add_middleware(FastRoutes, routes=routes_of(faces))
    app.add_middleware(
        BodyLimit,
        limit_bytes=settings.max_body_bytes,
        timeout_s=settings.body_timeout_s,
        all_bytes=settings.queue_bytes,
        observe_held=metrics.body_bytes.inc,
    )
    app.add_middleware(RequireKey, keys=keys)
    if settings.cors_origins:
        # Outside the keys: a browser's preflight request carries none.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["X-Request-ID", "Retry-After", "Inference-Header-Content-Length"],
        )
    app.add_middleware(RequestScope, metrics=metrics, tracing=tracing, closing=lambda: models.draining)
    for face in faces:
        app.include_router(face)
    app.include_router(stream_routes.routes(models, streams))
    app.include_router(stream_sockets.routes(models, streams, settings, metrics))
    if settings.explain:
        app.include_router(explain.routes(models, decoder, explanations))
    if settings.page:
        app.include_router(site.routes())
    if settings.docs:
        app.include_router(reference_pages.routes())

    if keys.required:
        require_key_in(app)

    @app.get("/metrics", tags=["people"], response_class=Response)
    async def prometheus() -> Response:
        """Counters and histograms for Prometheus."""
        return Response(metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    return app
