"""The answer to what never becomes a request: lines that are not HTTP, or more of them than a head may have."""

import uuid
from http import HTTPStatus

import orjson

from gaussport.serving.errors import STATUS, error_content
from gaussport.serving.request_scope import SAFE_HEADERS, log_refused


def refusal(message: str, code: str, client: tuple[str, int] | None) -> bytes:
    """The whole answer as it goes over the wire, with the headers that every answer has, noted in the log."""
    request_id, status = uuid.uuid4().hex, HTTPStatus(STATUS[code])
    log_refused(request_id, client, status, code)
    content = orjson.dumps(error_content(message, code, request_id))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(content)),
        (b"connection", b"close"),
        (b"x-request-id", request_id.encode()),
        *SAFE_HEADERS,
    ]
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, status.phrase.encode(), lines, content)
