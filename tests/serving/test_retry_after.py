"""Whoever is refused now and may be answered later is told when to come back."""

import asyncio
from pathlib import Path

import httpx
import pytest

from gaussport.serving.app import build_app
from gaussport.serving.errors import STATUS, RequestError, answer_of_error
from gaussport.serving.settings import Settings


@pytest.mark.parametrize("code", [code for code, status in STATUS.items() if status in (429, 503, 504)])
def test_who_may_come_back_is_told_when(code: str) -> None:
    assert answer_of_error({}, RequestError("no", code)).headers["retry-after"] == "1"
    assert answer_of_error({}, RequestError("no", code, retry_after_s=7)).headers["retry-after"] == "7"


@pytest.mark.parametrize("code", [code for code, status in STATUS.items() if status not in (429, 503, 504)])
def test_nobody_else_is(code: str) -> None:
    assert "retry-after" not in answer_of_error({}, RequestError("no", code)).headers


def test_a_server_that_loads_or_stops_says_so_to_probes_too(tiny: Path) -> None:
    app = build_app([tiny], Settings(threads=1))

    async def ask(code: str, *paths: str) -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://local") as http:
            for path in paths:
                answer = await http.get(path)
                found = (answer.status_code, answer.json()["code"], answer.headers["retry-after"])
                assert found == (503, code, "1"), path

    async def live() -> None:
        await ask("not_ready", "/v2/health/ready", "/v2/models/tiny/ready", "/v2/models/tiny")
        async with app.router.lifespan_context(app):
            app.state.models.draining = True
            await ask("draining", "/v2/health/ready", "/v2/models/tiny/ready")

    asyncio.run(live())
