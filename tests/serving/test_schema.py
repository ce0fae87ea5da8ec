"""`/openapi.json` says what the server does: schemathesis asks what it allows and what it forbids, with all its checks."""

import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import httpx
import pytest

SCHEMATHESIS = Path(sysconfig.get_path("scripts")) / "schemathesis"
CONFIG = Path(__file__).with_name("schemathesis.toml")


@pytest.mark.skipif(not SCHEMATHESIS.exists(), reason="schemathesis is not installed")
def test_schemathesis_finds_no_failure(server: Any, tmp_path: Path) -> None:
    command = [str(SCHEMATHESIS), "--config-file", str(CONFIG), "run", f"{server.url}/openapi.json", "--no-color"]
    options = ["--checks", "all", "--max-examples", "3", "--seed", "7", "--generation-database", "none"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=200, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-1000:]
    assert "Tested: " in done.stdout


def test_every_operation_says_how_it_fails(http: httpx.Client) -> None:
    """Errors have one form, which the schema names for each operation; the framework's own is nowhere."""
    text = http.get("/openapi.json").text
    assert "HTTPValidationError" not in text
    for path, operations in http.get("/openapi.json").json()["paths"].items():
        for method, operation in operations.items():
            schema = operation["responses"]["default"]["content"]["application/json"]["schema"]
            assert schema["required"] == ["error", "code", "request_id"], (method, path)


def test_the_examples_are_answered(http: httpx.Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    for path in ("/v1/classify", "/v2/models/{name}/infer", "/v2/models/{name}/versions/{version}/infer"):
        example = paths[path]["post"]["requestBody"]["content"]["application/json"]["example"]
        response = http.post(path.format(name="tiny", version="1"), json=example)
        assert response.status_code == 200, response.text
