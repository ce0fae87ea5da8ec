"""The protocol's bodies in `/openapi.json`. Its routes read and write them by hand, so FastAPI cannot know them."""

from typing import Any

from gaussport.serving.openapi import BINARY, COMMON_ERRORS, EXAMPLE_PICTURE, errors

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_PARAMETERS: Schema = {"type": "object"}


def _object(required: Schema, optional: Schema | None = None, **more: Any) -> Schema:
    """An object whose `required` properties are always there."""
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}, **more}


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def _answer(description: str, schema: Schema, more: Schema | None = None) -> Schema:
    found = {"description": description, "content": {"application/json": {"schema": schema}}}
    return {"responses": {"200": found, **(more or {})}}


_TENSOR_INFO = _object({"name": _TEXT, "datatype": _TEXT, "shape": _list({"type": "integer"})})
_CONFIG_TENSOR = _object({"name": _TEXT, "data_type": _TEXT, "dims": _list({"type": "integer"})}, {"format": _TEXT})
_DURATION = _object({"count": _COUNT, "ns": _COUNT})
_BATCH_STEPS = ("compute_input", "compute_infer", "compute_output")
_STEPS = ("success", "fail", "queue", *_BATCH_STEPS, "cache_hit", "cache_miss")
_MODEL_STATS = _object(
    {
        "name": _TEXT,
        "version": _TEXT,
        "last_inference": _COUNT,
        "inference_count": _COUNT,
        "execution_count": _COUNT,
        "inference_stats": _object(dict.fromkeys(_STEPS, _DURATION)),
        "batch_stats": _list(_object({"batch_size": _COUNT, **dict.fromkeys(_BATCH_STEPS, _DURATION)})),
    }
)
_STATE = {"type": "string", "enum": ["LOADING", "READY", "UNLOADING", "UNAVAILABLE"]}
_NOT_FOUND = errors(_404="no such model or version", _503="it is not ready")

SERVER = _answer("name, version and extensions", _object({"name": _TEXT, "version": _TEXT, "extensions": _list(_TEXT)}))
LIVE = _answer("it answers", _object({"live": _FLAG}))
READY = _answer(
    "it takes requests",
    _object({"ready": _FLAG}),
    errors({"ready": _FLAG}, _503="it is loading, stopping, or cannot serve a model"),
)
MODEL = _answer(
    "what goes in and comes out",
    _object(
        {
            "name": _TEXT,
            "versions": _list(_TEXT),
            "platform": _TEXT,
            "inputs": _list(_TENSOR_INFO),
            "outputs": _list(_TENSOR_INFO),
        }
    ),
    _NOT_FOUND,
)
MODEL_READY = _answer("it takes requests", _object({"name": _TEXT, "ready": _FLAG}), _NOT_FOUND)
CONFIG = _answer(
    "the configuration in Triton's form",
    _object(
        {
            "name": _TEXT,
            "platform": _TEXT,
            "backend": _TEXT,
            "max_batch_size": _COUNT,
            "input": _list(_CONFIG_TENSOR),
            "output": _list(_CONFIG_TENSOR),
            "dynamic_batching": _object({"max_queue_delay_microseconds": _COUNT}),
            "parameters": {"type": "object", "additionalProperties": _object({"string_value": _TEXT})},
        }
    ),
    _NOT_FOUND,
)
STATS = _answer("counts and nanoseconds", _object({"model_stats": _list(_MODEL_STATS)}), _NOT_FOUND)


def _optional(schema: Schema) -> Schema:
    """A JSON body that may be left out."""
    return {"requestBody": {"required": False, "content": {"application/json": {"schema": schema}}}}


INDEX = _optional(_object({}, {"ready": _FLAG})) | _answer(
    "every version of every model",
    _list(_object({"name": _TEXT, "version": _TEXT, "state": _STATE, "reason": _TEXT})),
    errors(_400="malformed"),
)
_CHANGE_ERRORS = errors(
    _400="malformed, or the bundle cannot be loaded", _403="not allowed on this server", _404="no such model"
)
LOAD = _optional(_object({}, {"parameters": _object({}, maxProperties=0)})) | _answer(
    "it takes requests", _object({"name": _TEXT, "load": _FLAG}), _CHANGE_ERRORS
)
UNLOAD = _optional(_object({}, {"parameters": _object({}, {"unload_dependents": _FLAG})})) | _answer(
    "new requests no longer find it", _object({"name": _TEXT, "unload": _FLAG}), _CHANGE_ERRORS
)

_INPUT = _object(
    {
        "name": _TEXT
        | {
            "description": "`pixels` (FP32 [N, C, H, W]) or `image` (BYTES [N], encoded pictures); for models of text "
            "`tokens` (INT64 [N, length]) or `text` (BYTES [N]); others that metadata list"
        },
        "shape": _list(_COUNT, minItems=1),
        "datatype": {"type": "string", "enum": ["FP32", "BYTES", "INT64", "INT32", "BOOL"]},
    },
    {
        "data": _list({}, description="numbers, flat or nested as the shape; pictures as base64 texts, texts as they are"),
        "parameters": _object({}, {"binary_data_size": _COUNT}),
    },
)
_WANTED = _object(
    {"name": _TEXT | {"description": "`logits` (the model's own) or `probabilities`"}},
    {"parameters": _object({}, {"binary_data": _FLAG, "classification": _COUNT})},
)
_OUTPUT = _object(
    {"name": _TEXT, "datatype": {"type": "string", "enum": ["FP32", "BYTES"]}, "shape": _list(_COUNT)},
    {"data": _list({}), "parameters": _PARAMETERS},
)
_RESULT = _object({"model_name": _TEXT, "model_version": _TEXT, "outputs": _list(_OUTPUT)}, {"id": _TEXT})
_REQUEST = _object(
    {"inputs": _list(_INPUT, minItems=1, description="every input of the model, once")},
    {
        "id": _TEXT,
        "outputs": _list(_WANTED),
        "parameters": _object(
            {},
            {
                "binary_data_output": _FLAG,
                "timeout": _COUNT | {"description": "time for the answer, in microseconds; 0 is the server's own"},
                "priority": _COUNT | {"description": "1 goes before all others; 0 is the default"},
            },
        ),
    },
)
_HEAD_LENGTH = {
    "name": "Inference-Header-Content-Length",
    "in": "header",
    "required": False,
    "description": "bytes of JSON before the binary tensors; 0: the body is one row of the FP32 input and nothing else",
    "schema": {"type": "integer", "minimum": 0},
}
_EXAMPLE = {"inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": [EXAMPLE_PICTURE]}]}
INFER: Schema = {
    "parameters": [_HEAD_LENGTH],
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": _REQUEST, "example": _EXAMPLE}, "application/octet-stream": BINARY},
    },
    "responses": {
        "200": {
            "description": "output tensors, as JSON, or JSON with the binary ones behind it",
            "content": {
                "application/json": {"schema": _RESULT},
                "application/octet-stream": BINARY,
            },
        },
        **COMMON_ERRORS,
    },
}
