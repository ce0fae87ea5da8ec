"""The requests that a client sends."""

from typing import Any

from gaussport.serving.client.exchange import Send

MODELS = Send("GET", "/v1/models")


def classify(given: bytes | str, parameters: dict[str, Any]) -> Send:
    """Of a picture or a file of text; a string is a text."""
    if isinstance(given, str):
        kind, content = "text/plain; charset=utf-8", given.encode("utf-8", "surrogatepass")  # the server refuses surrogates
    else:
        kind, content = "application/octet-stream", given  # the server looks at the bytes, not at what they are called
    return Send("POST", "/v1/classify", {"params": parameters, "content": content, "headers": {"Content-Type": kind}})


def parameters(top_k: int, model: str | None, version: str | None, timeout_ms: float | None, urgent: bool) -> dict[str, Any]:
    """Of `/v1/classify`; what is left to the server is left out."""
    given = {"top_k": top_k, "model": model, "version": version, "timeout_ms": timeout_ms, "priority": 1 if urgent else None}
    return {name: value for name, value in given.items() if value is not None}
