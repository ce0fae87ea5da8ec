"""JSON answers of the protocol, and routes that exist with and without a version in their path."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
from fastapi import APIRouter
from fastapi.responses import Response

Describe = Callable[[str, str | None], Awaitable[Response]]
Schema = dict[str, Any]


def json_answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status, headers, "application/json")


def get_of_model(router: APIRouter, path: str, describe: Describe, summary: str, schema: Schema) -> None:
    """`GET /models/{name}PATH` and `GET /models/{name}/versions/{version}PATH`, for the newest and for any version."""

    async def of_newest(name: str) -> Response:
        return await describe(name, None)

    async def of_version(name: str, version: str) -> Response:
        return await describe(name, version)

    word = path.strip("/") or "metadata"
    newest, versioned = f"/models/{{name}}{path}", f"/models/{{name}}/versions/{{version}}{path}"
    router.get(newest, summary=summary, name=f"model_{word}", openapi_extra=schema)(of_newest)
    router.get(versioned, summary=f"{summary}, of one version", name=f"version_{word}", openapi_extra=schema)(of_version)
