"""The one place where errors become HTTP: every code has its status here, every error body its three fields.

`{"error": "<one sentence>", "code": "<stable word>", "request_id": "…"}`: `error` is a string on both faces, because
clients of the Open Inference Protocol expect one. A 500 is a bug of ours and says nothing but the request id.
"""

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import compile_path

from gaussport.errors import GaussportError, ImageError, ServingError, TextError

log = logging.getLogger("gaussport.serving")

STATUS = {
    "empty_body": 400,
    "empty_image": 400,
    "malformed_json": 400,
    "malformed_base64": 400,
    "malformed_multipart": 400,
    "malformed_encoding": 400,
    "malformed_request": 400,
    "malformed_http": 400,
    "malformed_tensor": 400,
    "not_finite": 400,
    "bad_parameter": 400,
    "too_many_images": 400,
    "load_failed": 400,
    "cannot_stream": 400,
    "empty_text": 400,
    "invalid_text": 400,
    "too_many_texts": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "unknown_model": 404,
    "unknown_version": 404,
    "unknown_output": 404,
    "stream_unknown": 404,
    "method_not_allowed": 405,
    "body_too_slow": 408,
    "stream_busy": 409,
    "stream_offset": 409,
    "body_too_large": 413,
    "text_too_long": 413,
    "not_an_image": 415,
    "unsupported_format": 415,
    "unsupported_media_type": 415,
    "too_many_pixels": 422,
    "side_ratio": 422,
    "animated": 422,
    "image_damaged": 422,
    "queue_full": 429,
    "overloaded": 429,
    "too_many_streams": 429,
    "head_too_large": 431,
    "client_gone": 499,
    "internal": 500,
    "model_failed": 500,
    "streams_off": 501,
    "draining": 503,
    "not_ready": 503,
    "deadline_passed": 504,
}
_TRY_AGAIN = {429, 503, 504}
_CLOSING = {"body_too_slow", "body_too_large", "overloaded"}
"""After these the rest of the body is still on its way: the connection cannot carry a second request."""


class RequestError(ServingError):
    """A request that is answered with an error. `code` is a key of `STATUS`."""

    def __init__(self, message: str, code: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s
        """Every refusal that another try may not meet has it, a second if nobody knows better."""
        if retry_after_s is None and STATUS[code] in _TRY_AGAIN:
            self.retry_after_s = 1


def stopping() -> RequestError:
    return RequestError("the server is stopping: send the request to another one", "draining", retry_after_s=1)


def too_late() -> RequestError:
    return RequestError("the deadline passed before the answer was ready: allow more time or send less", "deadline_passed")


def error_content(message: str, code: str, request_id: str) -> dict[str, str]:
    return {"error": message, "code": code, "request_id": request_id}


def error_response(
    message: str, code: str, request_id: str, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer to a request that failed."""
    headers = dict(headers or {})
    if code in _CLOSING:
        headers["Connection"] = "close"
    content = orjson.dumps(error_content(message, code, request_id))
    return Response(content, status or STATUS[code], headers, "application/json")


def count_as(scope: MutableMapping[str, Any], code: str) -> None:
    """Let the metrics and the log of this request say which error it met."""
    scope["gaussport.code"] = code


def request_id_of(request: Request) -> str:
    return str(request.scope.get("gaussport.request_id", ""))


def install(app: FastAPI) -> None:
    """Let the application answer every expected error, its own and the framework's, in this form."""
    app.add_exception_handler(GaussportError, _ours)
    app.add_exception_handler(HTTPException, _frameworks)
    app.add_exception_handler(RequestValidationError, _parameters)
    app.add_exception_handler(ClientDisconnect, _gone)


async def answer_to(request: Request, error: GaussportError | ClientDisconnect) -> Response:
    """As the application answers it. Raises an error that is none of a request's."""
    return await (_gone if isinstance(error, ClientDisconnect) else _ours)(request, error)


async def _ours(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestError | ImageError | TextError):
        raise error
    return answer_of_error(request.scope, error)


def answer_of_error(scope: MutableMapping[str, Any], error: RequestError | ImageError | TextError) -> Response:
    """The answer to the request of this scope, which met this error."""
    request_id = str(scope.get("gaussport.request_id", ""))
    count_as(scope, error.code)
    if STATUS[error.code] == 500:
        return internal_error(request_id, error)
    headers = {}
    if isinstance(error, RequestError) and error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    return error_response(str(error), error.code, request_id, headers=headers)


def internal_error(request_id: str, error: BaseException) -> Response:
    """A fault of ours: the log has the traceback, the client the id to quote."""
    log.error("request %s failed", request_id, exc_info=error, extra={"request_id": request_id})
    return error_response(f"internal error, quote request id {request_id}", "internal", request_id)


async def _frameworks(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 404:
        message, code = "no such path: see /docs for what there is", "not_found"
    elif error.status_code == 405:
        allowed = _allowed(request, (error.headers or {}).get("Allow", "another method"))
        headers |= {"Allow": allowed}
        message, code = f"this path does not take {_printable(request.method)}: use {allowed}", "method_not_allowed"
    else:
        message, code = _printable(str(error.detail)), "malformed_request"
    count_as(request.scope, code)
    return error_response(message, code, request_id_of(request), error.status_code, headers)


def _allowed(request: Request, named: str) -> str:
    """Every method that the description has for a path: the framework names those of one route alone."""
    path, described = request.scope["path"], request.app.openapi()["paths"]
    methods = [operations for template, operations in described.items() if compile_path(template)[0].fullmatch(path)]
    return ", ".join(sorted(method.upper() for method in methods[0])) if methods else named


async def _parameters(request: Request, error: Exception) -> Response:
    """Names the first parameter at fault. Never echoes its value: that may be anything, a NaN or a lone surrogate."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    count_as(request.scope, "bad_parameter")
    return error_response(f"parameter {where}: {first['msg']}", "bad_parameter", request_id_of(request))


async def _gone(request: Request, error: Exception) -> Response:
    count_as(request.scope, "client_gone")
    return error_response("the client closed the connection", "client_gone", request_id_of(request))


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text[:100])
