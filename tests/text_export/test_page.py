"""The page at `/` with a model of text, in a real browser: what it shows is what the API answers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gaussport.export.bundle.store import Bundle
from tests.explain.test_site import browser as browser
from tests.serving.conftest import Server, running, write_tiny

TEXT = "ls - list directory contents\nGrüße <b>&amp;</b> 🙂"


@pytest.fixture(scope="module")
def served(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(bundle.path, write_tiny(tmp_path_factory.mktemp("tiny") / "tiny")) as server:
        yield server


@pytest.fixture
def page(browser: Any, served: Server) -> Iterator[Any]:
    """The page, opened; it must end without a script error and without a refused style or script."""
    context = browser.new_context(viewport={"width": 380, "height": 800})
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda said: faults.append(said.text) if "Content Security Policy" in said.text else None)
    opened.goto(served.url)
    opened.wait_for_selector("#writing:not([hidden])")
    yield opened
    context.close()
    assert faults == []


def test_a_text_is_classified_and_painted(page: Any, served: Server, tmp_path: Path) -> None:
    page.fill("#text", TEXT)
    page.click("#writing button")
    page.wait_for_selector("#painted:not([hidden])")
    with served.http() as http:
        answer = http.post("/v1/classify", json={"text": TEXT}).json()["results"][0]
        told = explained(http, 0)
    assert page.inner_text("#predictions tr:first-child td:first-child") == answer["predictions"][0]["label"]
    assert page.evaluate("document.getElementById('painting').textContent") == TEXT
    assert page.get_attribute("#painting span:first-child", "title") == f"component {told['strongest'][0]}"
    usage = told["components"]["usage"]
    assert page.inner_text("#parts tbody tr:first-child td:first-child").strip() == str(usage.index(max(usage)))
    page.select_option("#reader", "0,1")
    with served.http() as http:
        second = explained(http, 1)["strongest"][0]
    page.wait_for_selector(f"#painting span:first-child[title='component {second}']")
    # Nothing is wider than the screen, and a file does too.
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    (tmp_path / "a.txt").write_text("from a file")
    page.set_input_files("#file", str(tmp_path / "a.txt"))
    page.locator("#painting", has_text="from a file").wait_for()


def explained(http: httpx.Client, head: int) -> dict[str, Any]:
    response = http.post("/v1/explain", params={"tokens": "true", "layers": 0, "heads": head}, json={"text": TEXT})
    found: dict[str, Any] = response.json()["layers"][0]["heads"][0]
    return found


def test_a_refused_text_says_why_and_a_model_of_pictures_takes_its_place(page: Any) -> None:
    page.click("#writing button")
    page.locator("#error", has_text="empty").wait_for()
    page.select_option("#model", "tiny")
    page.wait_for_selector("#writing", state="hidden")
    assert page.is_visible("#sample")
    assert page.is_hidden("#painted")
