"""`/v1/explain` in `/openapi.json`. The route reads its query and body by hand, so FastAPI cannot know them."""

from typing import Any

from gaussport.serving.explain.query import FORMS, LONGEST
from gaussport.serving.openapi import BINARY, CLASSIFY, COMMON_ERRORS


def _parameter(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def _formed(name: str, default: str) -> dict[str, Any]:
    pattern, words = FORMS[name]
    return _parameter(name, f"{words}; default {default}", type="string", pattern=pattern, maxLength=LONGEST)


_AVAILABLE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "operator": {"type": "string"},
        "grid": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
        "heads": {"type": "integer"},
    },
}
_FLAG = {"type": "string", "enum": ["true", "false"], "default": "false"}
_SHARED = [entry for entry in CLASSIFY["parameters"] if entry["name"] in ("model", "version", "timeout_ms")]

EXPLAIN: dict[str, Any] = {
    "parameters": [
        *_SHARED,
        *(
            _formed(name, default)
            for name, default in (("layers", "all"), ("heads", "all"), ("cell", "the middle of the grid"))
        ),
        _parameter("format", "json, or png for a drawing", type="string", enum=["json", "png"], default="json"),
        _parameter("tokens", "every token's tensors too, of which any row can be computed", **_FLAG),
        _parameter("seen", "the picture as the model saw it, as a data URI, too", **_FLAG),
    ],
    "requestBody": CLASSIFY["requestBody"],
    "responses": {
        "200": {
            "description": "what each chosen head looked at",
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "properties": {
                            "model": {"type": "string"},
                            "version": {"type": "string"},
                            "request_id": {"type": "string"},
                            "warnings": {"type": "array", "items": {"type": "string"}},
                            "predictions": {"type": "array", "items": {"type": "object"}},
                            "seen": {"type": "string"},
                            "tokens": {"type": "integer", "description": "of a text"},
                            "windows": {"type": "integer"},
                            "pieces": {"type": "array", "items": {"type": "string"}},
                            "available": {"type": "array", "items": _AVAILABLE},
                            "layers": {"type": "array", "items": {"type": "object"}},
                            "timing_ms": {"type": "object", "additionalProperties": {"type": "number"}},
                        },
                    }
                },
                "image/png": BINARY,
            },
        },
        **COMMON_ERRORS,
    },
}
