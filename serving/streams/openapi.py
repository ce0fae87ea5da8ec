"""The bodies of `/v1/streams` in `/openapi.json`. The routes read them by hand, so FastAPI cannot know them."""

from typing import Any

from gaussport.serving.openapi import BINARY, PREDICTION, errors, parameter

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_FACTS = {"stream": _TEXT, "model": _TEXT, "version": _TEXT, "request_id": _TEXT, "tokens": _COUNT}
_LIMITS = {"ttl_s": {"type": "number"}, "bytes": _COUNT}
_PREDICTIONS = {"predictions": {"type": "array", "items": PREDICTION}}
_TIMING = {
    "timing_ms": {
        "type": "object",
        "properties": {step: {"type": "number"} for step in ("queue", "inference", "total")},
    }
}
_UNKNOWN = {"_404": "no such stream: it ended, or the server was restarted"}
_TOP_K = parameter("top_k", "labels, at most all", type="integer", minimum=1, default=5)


def _answer(description: str, properties: dict[str, Any], status: str = "200", **failures: str) -> dict[str, Any]:
    schema = {"type": "object", "required": list(properties), "properties": properties}
    content = {"application/json": {"schema": schema}}
    return {"responses": {status: {"description": description, "content": content}, **errors(**failures)}}


OPEN: dict[str, Any] = {
    "parameters": [
        parameter("model", "name of a model of /v1/models that streams; default the first", type="string"),
        parameter("version", "a version of that model; default its newest", type="string"),
        parameter("ttl_s", "seconds that it may be idle", type="number", exclusiveMinimum=0, maximum=86_400),
    ],
    **_answer(
        "the stream's id, how long it may be idle and what it takes in memory",
        _FACTS | _LIMITS,
        "201",
        _400="malformed, or a model that cannot stream",
        _404="unknown model",
        _429="no room for more streams, see Retry-After",
        _501="this server runs in several processes",
        _503="stopping",
    ),
}
CHUNK: dict[str, Any] = {
    "parameters": [
        _TOP_K,
        parameter("offset", "tokens that the stream has had: refused with 409 if it is another number", **_COUNT),
        parameter("timeout_ms", "time for the answer", type="number", exclusiveMinimum=0, maximum=3_600_000),
        parameter("priority", "1 goes before all others; 0 is the default", type="integer", minimum=0, default=0),
    ],
    "requestBody": {
        "required": True,
        "content": {
            "text/plain": {"schema": {"type": "string", "minLength": 1}, "example": "a piece of text"},
            "application/octet-stream": BINARY,
            "application/json": {
                "schema": {
                    "oneOf": [
                        {
                            "type": "object",
                            "required": ["text"],
                            "properties": {"text": {"type": "string", "minLength": 1}},
                            "additionalProperties": False,
                        },
                        {
                            "type": "object",
                            "required": ["tokens"],
                            "properties": {"tokens": {"type": "array", "minItems": 1, "items": _COUNT}},
                            "additionalProperties": False,
                        },
                    ]
                }
            },
        },
    },
    **_answer(
        "the prediction for all of the stream so far",
        _FACTS | _PREDICTIONS | _TIMING,
        _400="malformed",
        **_UNKNOWN,
        _408="body too slow",
        _409="the chunk before is still read, or this one begins elsewhere",
        _413="too large",
        _415="no text",
        _429="queue full, see Retry-After",
        _503="stopping",
        _504="deadline passed",
    ),
}
LOOK: dict[str, Any] = {
    "parameters": [_TOP_K],
    **_answer(
        "the stream as it is", _FACTS | _LIMITS | {"idle_s": {"type": "number"}} | _PREDICTIONS, _400="malformed", **_UNKNOWN
    ),
}
CLOSE: dict[str, Any] = _answer("it is closed", _FACTS, **_UNKNOWN)
