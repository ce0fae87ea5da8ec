"""`/docs` (Swagger UI) and `/redoc`, with every script and style served from here: they work without the public web, and
a browser that shows them may talk to this server only."""

import hashlib
from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

_ASSETS = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "redoc.standalone.js": "text/javascript",
    "favicon.png": "image/png",
}
_START = 'SwaggerUIBundle({url: "openapi.json", dom_id: "#page", deepLinking: true})'
_HEAD = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>gaussport</title>'
_SWAGGER = (
    f'{_HEAD}<link rel="stylesheet" href="docs/assets/swagger-ui.css"><link rel="icon" href="docs/assets/favicon.png">'
    '</head><body><div id="page"></div><script src="docs/assets/swagger-ui-bundle.js"></script>'
    '<script src="docs/assets/start.js"></script></body></html>'
)
_REDOC = (
    f'{_HEAD}<link rel="icon" href="docs/assets/favicon.png"></head><body><redoc spec-url="openapi.json"></redoc>'
    '<script src="docs/assets/redoc.standalone.js"></script></body></html>'
)
# Both libraries write style attributes; neither needs a script that is not a file of ours. Redoc searches in a worker.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; "
    "worker-src blob:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)


def routes() -> APIRouter:
    router = APIRouter(include_in_schema=False)
    assets = {name: (files("fastapi_offline") / "static" / name).read_bytes() for name in _ASSETS}
    kinds = _ASSETS | {"start.js": "text/javascript"}
    assets["start.js"] = _START.encode()
    headers = {"Content-Security-Policy": _POLICY}

    @router.get("/docs")
    async def swagger() -> Response:
        return HTMLResponse(_SWAGGER, headers=headers)

    @router.get("/redoc")
    async def redoc() -> Response:
        return HTMLResponse(_REDOC, headers=headers)

    def asset_route(name: str, content: bytes) -> None:
        tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        caching = {"Cache-Control": "public, max-age=86400", "ETag": tag}

        @router.get(f"/docs/assets/{name}")
        async def asset() -> Response:
            return Response(content, headers=caching, media_type=kinds[name])

    for name, content in assets.items():
        asset_route(name, content)
    return router
