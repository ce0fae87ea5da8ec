"""The model repository: what is there, and, where the operator allows it, loading and unloading."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gaussport.serving.errors import RequestError
from gaussport.serving.front_door import json_object
from gaussport.serving.served_models import ServedModels, State
from gaussport.serving.v2.answers import json_answer
from gaussport.serving.v2.openapi import INDEX, LOAD, UNLOAD


def routes(router: APIRouter, models: ServedModels, allow_load: bool) -> None:
    @router.post("/repository/index", openapi_extra=INDEX)
    async def index(request: Request) -> Response:
        """Every version of every model, with its state; with `ready` only those that can be asked."""
        ready_only = (await _content(request)).get("ready", False)
        if not isinstance(ready_only, bool):
            raise RequestError('"ready" must be true or false', "bad_parameter")
        return json_answer(
            [
                {"name": entry.name, "version": entry.version, "state": entry.state, "reason": entry.reason}
                for entry in models.index()
                if not ready_only or entry.state is State.READY
            ]
        )

    @router.post("/repository/models/{name}/load", openapi_extra=LOAD)
    async def load(request: Request, name: str) -> Response:
        """Load a model, or load it again when its files have changed; answers when it can be asked."""
        _check_allowed(allow_load)
        if _parameters(await _content(request)):
            raise RequestError(
                "a model is loaded as it lies on disk: leave config and files out of the request", "bad_parameter"
            )
        await models.load(name)
        return json_answer({"name": name, "load": True})

    @router.post("/repository/models/{name}/unload", openapi_extra=UNLOAD)
    async def unload(request: Request, name: str) -> Response:
        """Serve a model no longer; requests that have begun are answered. No model has dependents to unload."""
        _check_allowed(allow_load)
        if not isinstance(_parameters(await _content(request)).get("unload_dependents", False), bool):
            raise RequestError("the parameter unload_dependents must be true or false", "bad_parameter")
        await models.unload(name)
        return json_answer({"name": name, "unload": True})


def _check_allowed(allow_load: bool) -> None:
    if not allow_load:
        raise RequestError(
            "this server does not let clients load and unload models: start it with --allow-load", "forbidden"
        )


async def _content(request: Request) -> dict[str, Any]:
    """The body's JSON object; a client may send none."""
    body = await request.body()
    return json_object(body) if body else {}


def _parameters(content: dict[str, Any]) -> dict[str, Any]:
    parameters = content.get("parameters", {})
    if not isinstance(parameters, dict):
        raise RequestError('"parameters" must be an object', "malformed_request")
    return parameters
