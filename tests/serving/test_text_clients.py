"""The clients and the command with texts and streams, and every example of docs/sequences.md that asks a server."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gaussport import cli
from gaussport.serving.client import AsyncClient, Classified, Client, RefusedError
from tests.serving.conftest import Server, running
from tests.serving.texts import in_order, logits_of, probabilities_of, softmax, write_texts

PAGE = Path(__file__).parents[2] / "docs" / "sequences.md"
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
COMMANDS = [("sh", line) for language, block in BLOCKS if language == "sh" for line in block.strip().splitlines()]
ASKING = [("python", block) for language, block in BLOCKS if language == "python" and "127.0.0.1:8000" in block]
ASKING += [
    (language, line) for language, line in COMMANDS if "127.0.0.1:8000" in line and not line.startswith("gaussport serve")
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(write_texts(tmp_path_factory.mktemp("bundles") / "texts")) as server:
        yield server


def check(answers: list[Classified], texts: list[bytes]) -> None:
    assert len(answers) == len(texts)
    for answer, text in zip(answers, texts, strict=True):
        np.testing.assert_allclose(in_order(answer.predictions), probabilities_of(text), atol=1e-5)
        assert answer.tokens == len(text)


def test_both_clients_send_texts_and_files(served: Server, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe raw")
    given: list[Path | bytes | str] = ["Grüße", tmp_path / "a.txt", b"bytes" * 200]
    texts = ["Grüße".encode(), b"\xff\xfe raw", b"bytes" * 200]

    async def ask() -> list[Classified]:
        async with AsyncClient(served.url) as client:
            return [answer async for answer in client.classify(given)]

    with Client(served.url) as client:
        check(list(client.classify(given)), texts)
        (broken,) = client.classify(["\ud800"])
        assert broken.code == "invalid_text"
    check(asyncio.run(ask()), texts)


def test_both_clients_stream(served: Server) -> None:
    chunks: list[bytes | str] = ["Grü", "ß".encode()[:1], "ß".encode()[1:], b"\0"]
    whole = "Grüß\0".encode()

    async def stream() -> dict[str, Any]:
        async with AsyncClient(served.url) as client, client.stream("texts") as stream:
            for chunk in chunks:
                running = await stream.send(chunk)
            return running.__dict__

    with Client(served.url) as client:
        with client.stream() as open_one:
            for chunk in chunks:
                answer = open_one.send(chunk)
        assert answer.__dict__.keys() == {"predictions", "tokens", "timing_ms"}
        for found in (answer.__dict__, asyncio.run(stream())):
            np.testing.assert_allclose(in_order(found["predictions"]), softmax(logits_of(whole)), atol=1e-4)
            assert found["tokens"] == len(whole)
        with pytest.raises(RefusedError) as caught:
            open_one.send("more")
        assert caught.value.code == "stream_unknown"


def test_the_command_takes_texts_and_files(served: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("from a file")
    assert cli.main(["query", served.url, str(tmp_path), "--text", "as it is\n" * 9, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    rows = told["results"] if isinstance(told, dict) else told
    assert [row["predictions"][0]["label"] for row in rows]
    assert cli.main(["query", served.url, "--text", "as it is\n" * 9]) == 0
    assert "as it is as it is" in capsys.readouterr().out
    assert cli.main(["query", served.url]) == 2
    assert "give a text by --text" in capsys.readouterr().err


def test_the_page_has_examples() -> None:
    assert {language for language, _ in ASKING} == {"sh", "python"}


@pytest.mark.parametrize(("language", "text"), ASKING, ids=lambda part: part if len(part) < 9 else part[:40])
def test_the_example_runs(served: Server, tmp_path: Path, language: str, text: str) -> None:
    (tmp_path / "page.txt").write_text("ls - list directory contents\n" * 40)
    (tmp_path / "other.txt").write_text("Grüße\n")
    command = {"sh": ["bash", "-ec"], "python": [sys.executable, "-c"]}[language]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    program = text.replace("127.0.0.1:8000", f"127.0.0.1:{served.port}")
    done = subprocess.run([*command, program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "ham" in done.stdout, done.stdout
