"""The FastAPI application of some bundles: what is behind the front door, put together."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import Response

from gaussport import __version__
from gaussport.export.bundle.store import Bundle
from gaussport.models.image.decode import ImageLimits
from gaussport.serving import classify, errors
from gaussport.serving.body_limit import BodyLimit
from gaussport.serving.cores import usable_cores
from gaussport.serving.decoding import Decoder
from gaussport.serving.metrics import CONTENT_TYPE, Metrics
from gaussport.serving.request_scope import RequestScope
from gaussport.serving.served_model import ServedModels
from gaussport.serving.settings import Settings
from gaussport.serving.v2 import routes as v2


def build_app(bundles: Sequence[Bundle], settings: Settings | None = None) -> FastAPI:
    """Load every bundle and build the application. `app.state.models` lets the server lower readiness and drain."""
    settings = settings or Settings()
    metrics = Metrics()
    models = ServedModels(bundles, settings, metrics)
    limits = ImageLimits(settings.max_pixels, settings.max_side_ratio)
    decoder = Decoder(settings.decode_threads or usable_cores(), limits, metrics)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        for model in models:
            model.batcher.start()
        try:
            yield
        finally:
            for model in models:
                await model.batcher.close()
            decoder.pool.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(
        title="gaussport",
        version=__version__,
        summary="Gaussian-attention classifiers over HTTP",
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.models = models
    errors.install(app)
    app.add_middleware(BodyLimit, limit_bytes=settings.max_body_bytes, timeout_s=settings.body_timeout_s)
    app.add_middleware(RequestScope, metrics=metrics)
    app.include_router(classify.routes(models, decoder, metrics, settings.max_images))
    app.include_router(v2.routes(models, decoder, metrics, settings.max_images))

    @app.get("/metrics", tags=["people"], response_class=Response)
    async def prometheus() -> Response:
        """Counters and histograms for Prometheus."""
        return Response(metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    return app
