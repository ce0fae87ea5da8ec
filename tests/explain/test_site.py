"""The page at `/` in a real browser: what it shows is what the API answers, by mouse, by keyboard and on a narrow screen.

The package `playwright` is among the development's; it drives a Chromium or Chrome that is on the path, or its own if that
was installed (`playwright install chromium`). Skipped where there is none.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import httpx
import pytest

from gaussport.serving.explain.query import MOST_HEADS
from gaussport.serving.explain.site import policy

_PATIENCE_MS = 60_000
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with playwright.sync_playwright() as running:
        found = filter(None, map(shutil.which, _BROWSERS))
        chromium = next(found, running.chromium.executable_path)
        if not Path(chromium).exists():
            pytest.skip("there is no Chromium: install Debian's (apt install chromium), or run playwright install chromium")
        started = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Any]:
    """The page, opened; it must end without a script error and without a refused style or script."""
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    opened = context.new_page()
    opened.set_default_timeout(_PATIENCE_MS)
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda said: faults.append(said.text) if "Content Security Policy" in said.text else None)
    opened.on(
        "request", lambda asked: faults.append(asked.url) if not asked.url.startswith((url, "data:", "blob:")) else None
    )
    opened.goto(url)
    opened.wait_for_selector("#model option", state="attached")
    yield opened
    context.close()
    assert faults == []


def _upload(page: Any, picture: Path, model: str) -> None:
    page.select_option("#model", model)
    page.set_input_files("#file", str(picture))
    page.wait_for_selector("#explanation:not([hidden])")
    page.wait_for_selector("#heads button[aria-pressed=true]")


def _said(page: Any) -> tuple[float, tuple[int, int], float]:
    """What the page tells of the chosen cell: mean distance, the cell that it looks at most, and that weight."""
    text = page.inner_text("#told")
    found = re.search(r"looks ([\d.]+) cells away .* most at row (\d+), column (\d+) with ([\d.]+) %", text)
    assert found, text
    return float(found[1]), (int(found[2]), int(found[3])), float(found[4]) / 100


def _row(http: httpx.Client, picture: Path, model: str, layer: int, head: int, cell: str) -> Any:
    params = {"model": model, "layers": str(layer), "heads": str(head), "cell": cell}
    return http.post("/v1/explain", params=params, content=picture.read_bytes()).json()["layers"][0]["heads"][0]["query"][
        "row"
    ]


@pytest.mark.parametrize("model", ["mnist-ssog", "mnist-gma"])
def test_a_click_and_the_arrow_keys_show_the_exact_weights(page: Any, http: httpx.Client, digit: Path, model: str) -> None:
    _upload(page, digit, model)
    page.click("#heads button[data-layer='1'][data-head='2']")
    page.wait_for_selector("#heads button[data-layer='1'][data-head='2'][aria-pressed=true]")
    box = page.locator("#field").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 4.5 / 7, box["y"] + box["height"] * 1.5 / 7)
    page.keyboard.press("Tab")
    page.focus("#field")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    _, most, weight = _said(page)
    row = _row(http, digit, model, 1, 2, "2,3")
    assert row[most[0]][most[1]] == pytest.approx(max(map(max, row)))
    assert weight == pytest.approx(max(map(max, row)), abs=6e-4)
    assert page.inner_text("#predictions tr:first-child td:first-child") == _best(http, digit, model)
    assert "batch 1" in page.inner_text("#last")


def _best(http: httpx.Client, picture: Path, model: str) -> str:
    answer = http.post("/v1/classify", params={"model": model}, content=picture.read_bytes()).json()
    return str(answer["results"][0]["predictions"][0]["label"])


def test_dragging_an_atom_moves_what_the_head_looks_at_and_reset_brings_it_back(page: Any, digit: Path) -> None:
    _upload(page, digit, "mnist-ssog")
    before = _said(page)
    page.locator("#knob-λ").fill("1")
    page.locator("#knob-σ-rows").fill("0.05")
    page.locator("#knob-σ-columns").fill("0.05")
    box = page.locator("#field").bounding_box()
    down, right = (float(page.locator(f"#knob-μ-{way}").input_value()) for way in ("down", "right"))
    start = (box["x"] + box["width"] * (3.5 + right) / 7, box["y"] + box["height"] * (3.5 + down) / 7)
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 6.5 / 7, box["y"] + box["height"] * 0.5 / 7, steps=3)
    page.mouse.up()
    assert _said(page)[1] == (0, 6)
    page.click("#reset")
    assert _said(page) == before


def test_a_model_of_many_heads_is_asked_about_in_parts_as_they_come_into_view(page: Any, digit: Path) -> None:
    """The server's answers about four layers of four heads, told as sixty such layers."""
    asked: list[list[int]] = []

    def sixty(route: Any) -> None:
        address = urlsplit(route.request.url)
        query = dict(parse_qsl(address.query))
        wanted = [int(layer) for layer in query["layers"].split(",")]
        if "tokens" not in query:
            asked.append(wanted)
        query["layers"] = ",".join(str(layer % 4) for layer in wanted)
        answer = route.fetch(url=urlunsplit(address._replace(query=urlencode(query))))
        told = answer.json()
        told["available"] = told["available"] * 15
        told["layers"] = [told["layers"][sorted({w % 4 for w in wanted}).index(layer % 4)] for layer in wanted]
        route.fulfill(json=told)

    page.route("**/v1/explain?*", sixty)
    _upload(page, digit, "mnist-ssog")
    page.wait_for_selector("#heads button[data-layer='0'][title]")
    assert page.locator("#heads button").count() == 240
    page.locator("#heads button[data-layer='59'][data-head='3']").scroll_into_view_if_needed()
    page.wait_for_selector("#heads button[data-layer='59'][title]")
    assert all(4 * len(layers) <= MOST_HEADS["json"] for layers in asked)
    assert len(asked) == len({tuple(layers) for layers in asked})
    assert {0, 59} <= {layer for layers in asked for layer in layers}


def test_the_page_asks_about_as_many_heads_as_the_server_answers(http: httpx.Client) -> None:
    assert f"const MOST_HEADS = {MOST_HEADS['json']};" in http.get("/").text


def test_errors_are_shown_in_the_servers_own_words(page: Any, digit: Path) -> None:
    page.set_input_files("#file", files=[{"name": "a.png", "mimeType": "image/png", "buffer": b"nope"}])
    page.wait_for_selector("#error:not(:empty)")
    assert "these 4 bytes are not a picture" in page.inner_text("#error")
    page.select_option("#model", "older")
    page.set_input_files("#file", str(digit))
    page.wait_for_selector("#predictions tr")
    page.wait_for_selector("#error:not(:empty)")
    assert "older cannot be explained" in page.inner_text("#error")


def test_a_narrow_screen_needs_no_sideways_scrolling(page: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.select_option("#model", "mnist-gma")
    page.click("#sample")
    page.wait_for_selector("#explanation:not([hidden])")
    assert page.locator("html").evaluate("root => root.scrollWidth") <= 360
    assert page.locator("#components").is_visible()
    page.select_option("#component", "3")
    page.select_option("#side", "query")


def test_the_page_may_run_only_what_is_in_it(http: httpx.Client) -> None:
    answer = http.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    allowed = answer.headers["content-security-policy"]
    assert allowed == policy(answer.text)
    assert allowed.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in allowed
    assert not re.findall(r"\s(?:style|on[a-z]+)=", answer.text.partition("<script>")[0])
    assert not re.findall(r"(?:src|href)=\"(?!docs\"|data:,\")", answer.text)
