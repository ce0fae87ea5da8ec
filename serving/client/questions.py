"""The requests that a client sends."""

from typing import Any

from gaussport.serving.client.exchange import Send

MODELS = Send("GET", "/v1/models")


def classify(picture: bytes, parameters: dict[str, Any]) -> Send:
    headers = {"Content-Type": "application/octet-stream"}  # the server looks at the bytes, not at what they are called
    return Send("POST", "/v1/classify", {"params": parameters, "content": picture, "headers": headers})


def parameters(top_k: int, model: str | None, version: str | None, timeout_ms: float | None, urgent: bool) -> dict[str, Any]:
    """Of `/v1/classify`; what is left to the server is left out."""
    given = {"top_k": top_k, "model": model, "version": version, "timeout_ms": timeout_ms, "priority": 1 if urgent else None}
    return {name: value for name, value in given.items() if value is not None}
