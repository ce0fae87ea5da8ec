"""FastAPI inside our own layers: for requests that leave before they reach it, nothing of it is passed on the way."""

from typing import Any

from fastapi import FastAPI
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send


class Layered(FastAPI):
    """The application. `add_middleware` puts a layer around all of FastAPI and not inside it, the last one outermost;
    it is the outermost that makes a 500 of an unforeseen error, in FastAPI's place."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._outermost: ASGIApp = super().__call__

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await super().__call__(scope, receive, send)
        else:
            await self._outermost(scope, receive, send)

    def add_middleware(self, middleware_class: Any, *arguments: Any, **options: Any) -> None:
        self._outermost = middleware_class(self._outermost, *arguments, **options)

    def build_middleware_stack(self) -> ASGIApp:
        stack = super().build_middleware_stack()
        assert isinstance(stack, ServerErrorMiddleware)
        return stack.app
