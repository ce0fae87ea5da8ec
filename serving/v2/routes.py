"""The routes of the Open Inference Protocol v2."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gaussport.serving.decoding import Decoder
from gaussport.serving.errors import STATUS, RequestError, error_content, request_id_of, stopping
from gaussport.serving.served_models import ServedModels
from gaussport.serving.settings import Settings
from gaussport.serving.tracing import Tracing
from gaussport.serving.v2 import inference, metadata, openapi, repository, statistics
from gaussport.serving.v2.answers import get_of_model, json_answer


def routes(models: ServedModels, decoder: Decoder, tracing: Tracing, settings: Settings) -> APIRouter:
    router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"])
    _of_server(router, models)
    _of_models(router, models)
    repository.routes(router, models, settings.allow_load)
    inference.routes(router, models, decoder, tracing, settings.max_images)
    return router


def _of_server(router: APIRouter, models: ServedModels) -> None:
    @router.get("", openapi_extra=openapi.SERVER)
    async def server() -> Response:
        """Name, version and extensions."""
        return json_answer(metadata.server())

    @router.get("/health/live", openapi_extra=openapi.LIVE)
    async def live() -> Response:
        """The process answers."""
        return json_answer({"live": True})

    @router.get("/health/ready", openapi_extra=openapi.READY)
    async def ready(request: Request) -> Response:
        """The server takes requests; false from the moment it is told to stop."""
        if models.ready:
            return json_answer({"ready": True})
        error = stopping() if models.draining else RequestError(models.why_not_ready, "not_ready")
        content = {"ready": False, **error_content(str(error), error.code, request_id_of(request))}
        return json_answer(content, STATUS[error.code], {"Retry-After": str(error.retry_after_s)})


def _of_models(router: APIRouter, models: ServedModels) -> None:
    async def describe(name: str, version: str | None) -> Response:
        return json_answer(metadata.model(models.find(name, version), models.versions(name)))

    async def ready(name: str, version: str | None) -> Response:
        served = models.find(name, version)
        if models.draining:
            raise stopping()
        return json_answer({"name": served.name, "ready": True})

    async def config(name: str, version: str | None) -> Response:
        return json_answer(metadata.config(models.find(name, version)))

    async def stats(name: str, version: str | None) -> Response:
        versions = models.versions(name) if version is None else [version]
        return json_answer(statistics.of(models.find(name, each) for each in versions))

    @router.get("/models/stats", openapi_extra=openapi.STATS)
    async def stats_of_all() -> Response:
        """What each version of each model has done since it was loaded."""
        return json_answer(statistics.of(models))

    get_of_model(router, "", describe, "Inputs and outputs", openapi.MODEL)
    get_of_model(router, "/ready", ready, "Whether this model takes requests", openapi.MODEL_READY)
    get_of_model(router, "/config", config, "The model's configuration in Triton's form", openapi.CONFIG)
    get_of_model(router, "/stats", stats, "What this model has done since it was loaded", openapi.STATS)
