"""`POST /v1/explain` of a real server: the numbers of the command, drawings, limits, and every refusal in the usual form."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from gaussport.cli import main
from gaussport.export.bundle.store import Bundle
from gaussport.serving.app import build_app
from gaussport.serving.errors import RequestError
from gaussport.serving.explain.explainer import Explainer
from gaussport.serving.explain.queue import ExplainQueue
from gaussport.serving.metrics import Metrics
from gaussport.serving.served_model import ServedModel
from gaussport.serving.settings import Settings

Bundles = Callable[[str], Bundle]


def _ask(http: httpx.Client, picture: bytes, **params: str) -> httpx.Response:
    return http.post("/v1/explain", params=params, content=picture, headers={"content-type": "image/png"})


def test_it_answers_as_the_command_does(
    http: httpx.Client, bundles: Bundles, digit: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    answer = _ask(http, digit.read_bytes(), model="mnist-gma", layers="blocks.1.attn", heads="0,3", cell="0,6").json()
    words = ["explain", str(bundles("mnist-gma").path), str(digit), "--json", "--threads", "1"]
    assert main([*words, "--layer", "1", "--head", "0", "--head", "3", "--cell", "0,6"]) == 0
    (expected,) = json.loads(capsysbinary.readouterr().out)["pictures"]
    assert answer["layers"] == expected["layers"]
    assert [(layer["name"], layer["heads"], layer["grid"]) for layer in answer["available"]] == [
        (f"blocks.{number}.attn", 4, [7, 7]) for number in range(2)
    ]
    assert answer["predictions"] == expected["predictions"]
    assert set(answer["timing_ms"]) == {"queue", "decode", "explain", "total"}


def test_tokens_are_enough_to_compute_any_row(http: httpx.Client, digit: Path) -> None:
    """As the page does: the filter over rows takes the steering of the intermediate cell."""
    answer = _ask(http, digit.read_bytes(), model="mnist-ssog", layers="3", heads="2", cell="1,5", tokens="true").json()
    (head,) = answer["layers"][0]["heads"]
    atoms = {name: np.array(values) for name, values in head["tokens"]["atoms"].items()}
    cells = np.arange(7)

    def share(distance: Any, mu: float, sigma: float) -> Any:
        weights = np.exp(-((distance - mu) ** 2) / 2 / sigma**2)
        return weights / weights.sum()

    row = np.zeros((7, 7))
    for r, weight in enumerate(atoms["weight"][1, 5]):
        col = share(5 - cells, atoms["offset"][1, 5, r, 1], atoms["width"][1, 5, r, 1])
        for k in range(7):
            row[:, k] += weight * col[k] * share(1 - cells, atoms["offset"][1, k, r, 0], atoms["width"][1, k, r, 0])
    np.testing.assert_allclose(head["query"]["row"], row, rtol=0, atol=1e-12)


def test_it_draws_and_shows_what_the_model_saw(http: httpx.Client, digit: Path) -> None:
    drawn = _ask(http, digit.read_bytes(), model="mnist-gma", layers="0", heads="0", format="png")
    assert (drawn.status_code, drawn.headers["content-type"], drawn.content[:4]) == (200, "image/png", b"\x89PNG")
    seen = _ask(http, digit.read_bytes(), model="mnist-gma", layers="0", heads="0", seen="true").json()["seen"]
    assert seen.startswith("data:image/png;base64,")


@pytest.mark.parametrize(
    ("params", "body", "status", "code", "fault"),
    [
        ({"layers": "9"}, None, 400, "bad_parameter", "there is no layer '9'"),
        ({"heads": "4"}, None, 400, "bad_parameter", "has no head 4: choose from 0 to 3"),
        ({"heads": "1,,2"}, None, 400, "bad_parameter", "parameter heads: give whole numbers"),
        ({"layers": "0,"}, None, 400, "bad_parameter", "parameter layers: give names or numbers"),
        ({"layers": "0" * 5000}, None, 400, "bad_parameter", "parameter layers: give names or numbers"),
        ({"heads": "x"}, None, 400, "bad_parameter", "parameter heads: give whole numbers"),
        ({"cell": "7,0"}, None, 400, "bad_parameter", "has no cell 7,0"),
        ({"cell": "1"}, None, 400, "bad_parameter", "parameter cell: give ROW,COLUMN"),
        ({"format": "pdf"}, None, 400, "bad_parameter", "parameter format: give json or png"),
        ({"tokens": "yes"}, None, 400, "bad_parameter", "parameter tokens: give true or false"),
        ({"model": "nobody"}, None, 404, "unknown_model", "no model of that name"),
        ({}, b"no picture", 415, "not_an_image", "are not a picture"),
        ({}, b"", 400, "empty_body", ""),
    ],
)
def test_refusals(
    http: httpx.Client, digit: Path, params: dict[str, str], body: bytes | None, status: int, code: str, fault: str
) -> None:
    answer = _ask(http, digit.read_bytes() if body is None else body, **params)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert fault in answer.json()["error"]
    assert set(answer.json()) == {"error", "code", "request_id"}


def test_two_pictures_are_one_too_many(http: httpx.Client, digit: Path) -> None:
    answer = http.post("/v1/explain", files=[("file", ("a.png", digit.read_bytes())) for _ in range(2)])
    assert (answer.status_code, answer.json()["code"]) == (400, "too_many_images")


def test_a_model_without_explain_onnx_is_served_and_says_why_it_is_not_explained(http: httpx.Client, digit: Path) -> None:
    answer = _ask(http, digit.read_bytes(), model="older")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert "older cannot be explained: its bundle has no explain.onnx" in answer.json()["error"]
    good = http.post("/v1/classify", params={"model": "older"}, content=digit.read_bytes())
    assert good.status_code == 200


def test_the_queue_is_bounded_and_a_place_is_held_until_the_work_ends(bundles: Bundles) -> None:
    async def overfill() -> RequestError:
        served = ServedModel(bundles("mnist-gma"), Settings(threads=1), Metrics())
        queue, started, go = ExplainQueue(2), threading.Event(), threading.Event()

        def slow(_explainer: Explainer) -> None:
            started.set()
            go.wait(30)

        waiting = [asyncio.ensure_future(queue.run(served, slow)) for _ in range(2)]
        await asyncio.to_thread(started.wait, 30)
        waiting[0].cancel()  # a client that hangs up: its work is running and cannot be stopped
        await asyncio.wait(waiting[:1])
        with pytest.raises(RequestError) as refused:
            await queue.run(served, slow)
        go.set()
        await waiting[1]
        queue.expect_room()
        queue.close()
        await served.retire(1)
        return refused.value

    error = asyncio.run(overfill())
    assert (error.code, error.retry_after_s) == ("queue_full", 1)


def test_a_flag_turns_it_off(bundles: Bundles, digit: Path) -> None:
    async def ask() -> httpx.Response:
        app = build_app([bundles("mnist-gma").path], Settings(explain=False, threads=1))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            return await client.post("/v1/explain", content=digit.read_bytes())

    answer = asyncio.run(ask())
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
