"""The people's bodies in `/openapi.json`, and its errors. The routes read them by hand, so FastAPI cannot know them."""

from typing import Any

from fastapi import FastAPI

from gaussport.serving.api_keys import OPEN_PATHS

BINARY = {"schema": {"type": "string", "format": "binary"}}
_TEXT = {"type": "string", "description": "base64, or a data URI"}
EXAMPLE_PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mM4UaEBAAN0AWn1BwN7AAAAAElFTkSuQmCC"
"""A picture of one pixel."""
_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error", "code", "request_id"],
    "properties": {"error": {"type": "string"}, "code": {"type": "string"}, "request_id": {"type": "string"}},
}


def errors(also: dict[str, Any] | None = None, /, **meanings: str) -> dict[str, Any]:
    """Responses by status, `_404="what it means"`; `also` are properties that these bodies have besides."""
    schema = {**_ERROR, "properties": {**_ERROR["properties"], **(also or {})}}
    content = {"application/json": {"schema": schema}}
    return {status[1:]: {"description": meaning, "content": content} for status, meaning in meanings.items()}


COMMON_ERRORS = errors(
    _400="malformed", _404="unknown model", _408="body too slow", _413="too large", _415="not what the model reads",
    _422="an image that cannot be used", _429="queue full, see Retry-After", _503="stopping", _504="deadline passed",
)  # fmt: skip

ERRORS: dict[int | str, dict[str, Any]] = {
    "default": {"description": "any error", "content": {"application/json": {"schema": _ERROR}}}
}
"""For every operation, instead of the framework's own 422, which we never answer."""


_KEYS: dict[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "an API key of the operator's"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def require_key_in(app: FastAPI) -> None:
    """Have the description say that every path but the open ones wants an API key."""
    describe = app.openapi

    def with_keys() -> dict[str, Any]:
        described = describe()
        described.setdefault("components", {})["securitySchemes"] = _KEYS
        described["security"] = [{name: []} for name in _KEYS]
        for path in described["paths"].keys() & set(OPEN_PATHS):
            for operation in described["paths"][path].values():
                operation["security"] = []
        return described

    app.openapi = with_keys  # type: ignore[method-assign]


def parameter(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


PREDICTION = {
    "type": "object",
    "properties": {"label": {"type": "string"}, "index": {"type": "integer"}, "probability": {"type": "number"}},
}
_RESULT = {
    "type": "object",
    "properties": {
        "predictions": {"type": "array", "items": PREDICTION},
        "warnings": {"type": "array", "items": {"type": "string"}},
        "tokens": {"type": "integer", "description": "of a text"},
        "windows": {"type": "integer", "description": "of a text: in how many pieces it was read"},
        "error": {"type": "object", "properties": {"code": {"type": "string"}, "message": {"type": "string"}}},
    },
}
_STEPS = ("queue", "decode", "inference", "total")

CLASSIFY: dict[str, Any] = {
    "parameters": [
        parameter("top_k", "labels for each picture or text, at most all", type="integer", minimum=1, default=5),
        parameter("model", "name of a model of /v1/models; default the first", type="string"),
        parameter("version", "a version of that model; default its newest", type="string"),
        parameter("timeout_ms", "time for the answer", type="number", exclusiveMinimum=0, maximum=3_600_000),
        parameter("priority", "1 goes before all others; 0 is the default", type="integer", minimum=0, default=0),
    ],
    "requestBody": {
        "required": True,
        "content": {
            "image/*": BINARY,
            "text/plain": {"schema": {"type": "string", "minLength": 1}},
            "application/octet-stream": BINARY,
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "array", "items": {"type": "string", "format": "binary"}}},
                }
            },
            "application/json": {
                "example": {"image": EXAMPLE_PICTURE},
                "schema": {
                    "oneOf": [
                        {"type": "object", "required": ["image"], "properties": {"image": _TEXT}},
                        {
                            "type": "object",
                            "required": ["images"],
                            "properties": {"images": {"type": "array", "minItems": 1, "items": _TEXT}},
                        },
                        {
                            "type": "object",
                            "required": ["text"],
                            "properties": {"text": {"type": "string", "minLength": 1}},
                        },
                        {
                            "type": "object",
                            "required": ["texts"],
                            "properties": {"texts": {"type": "array", "minItems": 1, "items": {"type": "string"}}},
                        },
                    ]
                },
            },
        },
    },
    "responses": {
        "200": {
            "description": "one result for each picture or text, in order",
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "properties": {
                            "model": {"type": "string"},
                            "version": {"type": "string"},
                            "request_id": {"type": "string"},
                            "results": {"type": "array", "items": _RESULT},
                            "timing_ms": {"type": "object", "properties": {step: {"type": "number"} for step in _STEPS}},
                        },
                    }
                }
            },
        },
        **COMMON_ERRORS,
    },
}
