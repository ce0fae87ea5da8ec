"""`GET /`: one page to drop a picture on. Style and script are in the file and allowed by their hashes: a browser that shows
it runs nothing else and talks to this server only."""

import base64
import hashlib
import re
from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

_PAGE = "site.html"


def routes() -> APIRouter:
    router = APIRouter(include_in_schema=False)
    content = (files("gaussport.serving.explain") / _PAGE).read_text("utf-8")
    headers = {"Content-Security-Policy": policy(content)}

    @router.get("/")
    async def page() -> Response:
        return HTMLResponse(content, headers=headers)

    return router


def policy(content: str) -> str:
    """The page's Content-Security-Policy: its own style and script, pictures from memory, requests to this server."""
    return (
        f"default-src 'none'; script-src {_hash(content, 'script')}; style-src {_hash(content, 'style')}; "
        "img-src data: blob:; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    )


def _hash(content: str, tag: str) -> str:
    (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", content, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'"
