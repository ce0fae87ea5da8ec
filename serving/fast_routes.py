"""The routes that take inference requests, found at once.

FastAPI tries every route of every router in turn, resolves dependencies that ours have none of and wraps each request in
layers that do nothing for them: together a third of a millisecond, more than all that is ours. So these requests leave
before it, to the same functions; FastAPI still has their routes, for the description of the interface and for methods
that they do not take.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import cast

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gaussport.errors import GaussportError
from gaussport.serving.errors import answer_to

PATHS = frozenset({"/v1/classify", "/v2/models/{name}/infer", "/v2/models/{name}/versions/{version}/infer"})

Answer = Callable[..., Awaitable[Response]]


@dataclass(frozen=True)
class FastRoutes:
    """Middleware, the innermost. Each of `routes` is a POST; its function takes the request and the texts in its path."""

    app: ASGIApp
    routes: tuple[APIRoute, ...]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            for route in self.routes:
                found = route.path_regex.match(scope["path"])
                if found is not None:
                    scope["route"] = route
                    request = Request(scope, receive, send)
                    try:
                        response = await cast(Answer, route.endpoint)(request, **found.groupdict())
                    except (GaussportError, ClientDisconnect) as error:
                        response = await answer_to(request, error)
                    await response(scope, receive, send)
                    return
        await self.app(scope, receive, send)


def routes_of(routers: Iterable[APIRouter]) -> tuple[APIRoute, ...]:
    """The routes of `PATHS` that these routers have."""
    routes = (route for router in routers for route in router.routes if isinstance(route, APIRoute))
    return tuple(route for route in routes if route.path in PATHS)
