"""What surrounds every request: its id, its count in the metrics, and the net under it that makes a 500 of a bug."""

import re
import time
import uuid
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gaussport.serving.errors import internal_error
from gaussport.serving.metrics import Metrics

_ID_HEADER = "X-Request-ID"
_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True)
class RequestScope:
    """The outermost middleware. A client's own request id is kept if it is harmless, else one is made."""

    app: ASGIApp
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get(_ID_HEADER, "")
        request_id = given if _ID.fullmatch(given) else uuid.uuid4().hex
        scope["gaussport.request_id"] = request_id
        began = time.monotonic()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[_ID_HEADER] = request_id
            await send(message)

        self.metrics.in_flight.inc()
        try:
            await self.app(scope, receive, send_with_id)
        except Exception as error:
            if status:
                raise  # half an answer is out: only the connection can be closed
            await internal_error(request_id, error)(scope, receive, send_with_id)
        finally:
            self.metrics.in_flight.dec()
            route = getattr(scope.get("route"), "path", "unmatched")
            self.metrics.request(route, scope["method"], status, time.monotonic() - began)
