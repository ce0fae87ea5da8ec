"""The main job, end to end: export the zoo's SSOG and GMA checkpoints, verify, serve, and classify 1,000 real pictures, and
texts, whole and as streams.

`make demo` runs it. It ends with exit code 0 only if every answer over HTTP is the one that PyTorch gives.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import torch
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from gaussport.models import zoo
from gaussport.models.checkpoint import SequenceCheckpoint, build_classifier, read_any_checkpoint, read_checkpoint
from gaussport.models.data.mnist import write_held_out
from gaussport.models.image.decode import decode
from gaussport.models.image.preprocess import to_pixels
from gaussport.models.text import encode
from gaussport.serving.client import Client

MODELS = ("mnist-ssog", "mnist-gma")
TEXT_MODEL = "manpages-gma"
TEXTS = Path(__file__).with_name("texts")  # LANGUAGE.txt: the same few sentences in each, written for this demo
CHUNK = 50  # bytes of a stream's chunk, wherever in a character it ends
LARGEST_DIFFERENCE = 1e-4  # between probabilities, of HTTP and PyTorch, and of a stream and the whole text
CONNECTIONS = 16
ONE_BY_ONE = 300  # pictures sent over one connection, each waiting for the answer to the one before
STOP_S = 30.0  # more than the server takes to drain

console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".demo"), help="where bundles and pictures go (default: .demo)")
    folder: Path = parser.parse_args().folder
    folder.mkdir(exist_ok=True)
    bundles = [export_and_verify(name, folder / name) for name in (*MODELS, TEXT_MODEL)]

    written = write_held_out(folder / "digits")
    pictures = sorted((folder / "digits").glob("*/*.png"))
    console.print(f"\n[bold]{written} held-out MNIST digits[/] as PNG files in {folder / 'digits'}")
    with serving(bundles) as url:
        faithful = [classify_all(url, name, pictures) for name in MODELS]
        faithful.append(read_texts(url))
        show_batches(url)
    if not all(faithful):
        console.print("[red]the server's answers are not PyTorch's[/]")
        return 1
    console.print("\nAll answers are PyTorch's. Next: [bold]make serve[/], then open http://127.0.0.1:8000/docs or run")
    console.print(f"  .venv/bin/gaussport query http://127.0.0.1:8000 {pictures[0]} {pictures[-1]}")
    return 0


def export_and_verify(name: str, bundle: Path) -> Path:
    """The bundle of a zoo checkpoint, made and proved by the same commands that a user types."""
    checkpoint = Path(os.path.relpath(zoo.path(name).resolve()))
    gaussport("export", str(checkpoint), "-o", str(bundle), "--overwrite")
    gaussport("verify", str(bundle), "--checkpoint", str(checkpoint))
    return bundle


def gaussport(*words: str) -> None:
    console.print(f"\n[bold]$ gaussport {' '.join(words)}[/]")
    subprocess.run([sys.executable, "-m", "gaussport", *words], check=True)


@contextmanager
def serving(bundles: list[Path]) -> Iterator[str]:
    """A server of these bundles on a free port; its address. It must end with exit code 0 when told to stop."""
    words = [sys.executable, "-m", "gaussport", "serve", *map(str, bundles), "--port", "0"]
    console.print(f"\n[bold]$ gaussport serve {' '.join(map(str, bundles))} --port 0[/]")
    began = time.monotonic()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        if not line:  # it has said on stderr why it cannot start
            raise SystemExit(server.wait() or 1)
        console.print(f"{line.rstrip()}  [dim](ready after {time.monotonic() - began:.1f} s)[/]")
        try:
            yield line.split()[-1]
        finally:
            server.send_signal(signal.SIGTERM)
            if server.wait(STOP_S) != 0:
                raise SystemExit(f"the server ended with exit code {server.returncode}")
            console.print("server drained and stopped")


def classify_all(url: str, name: str, pictures: list[Path]) -> bool:
    """Classify every picture over HTTP, alone and from many connections; whether the answers are PyTorch's."""
    truth = [int(picture.parent.name) for picture in pictures]
    expected = pytorch_answers(name, pictures)
    with Client(url, connections=1) as client:
        alone_per_s, _ = timed(client, name, pictures[:ONE_BY_ONE])
    with Client(url, connections=CONNECTIONS) as client:
        together_per_s, answers = timed(client, name, pictures)
    table = Table(title=name, title_justify="left", show_header=False)
    table.add_row("accuracy over HTTP", f"{correct(answers, truth)} of {len(truth)}")
    table.add_row("accuracy in PyTorch", f"{correct(expected, truth)} of {len(truth)}")
    table.add_row("same answer", f"{correct(answers, expected)} of {len(truth)}")
    table.add_row("one by one", f"{alone_per_s:.0f} pictures/s")
    table.add_row(f"{CONNECTIONS} connections, batched", f"{together_per_s:.0f} pictures/s")
    console.print(table)
    return answers == expected


def timed(client: Client, name: str, pictures: list[Path]) -> tuple[float, list[int]]:
    """Pictures per second, and the digit answered for each."""
    began = time.perf_counter()
    answers = [int(answer.predictions[0]["label"]) for answer in client.classify(pictures, top_k=1, model=name)]
    return len(pictures) / (time.perf_counter() - began), answers


def pytorch_answers(name: str, pictures: list[Path]) -> list[int]:
    """What the checkpoint's own module says of the same files."""
    checkpoint = read_checkpoint(zoo.path(name))
    spec = checkpoint.preprocessing
    decoded = (decode(picture.read_bytes(), background=spec.background).rgb for picture in pictures)
    pixels = torch.stack([torch.from_numpy(to_pixels(picture, spec)) for picture in decoded])
    with torch.inference_mode():
        return [int(index) for index in build_classifier(checkpoint)(pixels).argmax(1)]


def read_texts(url: str) -> bool:
    """Classify every text over HTTP, whole and as a stream of chunks; whether both answer as PyTorch does."""
    texts = sorted(TEXTS.glob("*.txt"))
    labels, expected = pytorch_probabilities(texts)
    table = Table("text", "bytes", "over HTTP", "in PyTorch", f"as a stream, {CHUNK} bytes at a time", title=TEXT_MODEL)
    table.title_justify, table.columns[1].justify = "left", "right"
    furthest, same = 0.0, []
    with Client(url) as client:
        whole = list(client.classify(texts, top_k=len(labels), model=TEXT_MODEL))
        for text, answer, wanted in zip(texts, whole, expected, strict=True):
            streamed = as_stream(client, text.read_bytes(), len(labels))
            found = [by_label(answer.predictions, labels), by_label(streamed, labels), wanted]
            best = [f"{labels[int(row.argmax())]} {float(row.max()):.3f}" for row in found]
            same.append(len({int(row.argmax()) for row in found}) == 1)
            furthest = max(furthest, *(float((row - wanted).abs().max()) for row in found))
            table.add_row(text.stem, str(text.stat().st_size), best[0], best[2], best[1])
    console.print(table)
    console.print(
        f"{sum(same)} of {len(texts)} texts have one answer all three ways; probabilities differ by {furthest:.0e} at most"
    )
    return all(same) and furthest <= LARGEST_DIFFERENCE


def as_stream(client: Client, text: bytes, classes: int) -> list[dict[str, Any]]:
    """The running prediction after the last chunk."""
    with client.stream(TEXT_MODEL, top_k=classes) as stream:
        return [stream.send(text[start : start + CHUNK]) for start in range(0, len(text), CHUNK)][-1].predictions


def by_label(predictions: list[dict[str, Any]], labels: Sequence[str]) -> torch.Tensor:
    """Probabilities [classes] in the labels' order."""
    told = {prediction["label"]: prediction["probability"] for prediction in predictions}
    return torch.tensor([told[label] for label in labels])


def pytorch_probabilities(texts: list[Path]) -> tuple[Sequence[str], list[torch.Tensor]]:
    """The labels, and what the checkpoint's own module says of each text, read whole."""
    checkpoint = read_any_checkpoint(zoo.path(TEXT_MODEL))
    assert isinstance(checkpoint, SequenceCheckpoint)
    module = build_classifier(checkpoint)
    tokens = (encode(text.read_bytes(), checkpoint.preprocessing, Path()) for text in texts)
    with torch.inference_mode():
        return checkpoint.labels, [module(torch.from_numpy(row)[None]).softmax(-1)[0] for row in tokens]


def correct(answers: list[int], wanted: list[int]) -> int:
    return sum(answer == right for answer, right in zip(answers, wanted, strict=True))


def show_batches(url: str) -> None:
    """The batch sizes that the models saw, from the server's own metrics."""
    text = httpx.get(f"{url}/metrics").text
    family = next(x for x in text_string_to_metric_families(text) if x.name == "gaussport_batch_size")
    table = Table(title="batch sizes seen (from /metrics)", title_justify="left")
    for column in ("model", "rows in a batch", "batches"):
        table.add_column(column, justify="right")
    previous = {"le": "0", "count": 0.0, "model": ""}
    for sample in (sample for sample in family.samples if sample.name.endswith("_bucket")):
        model, upper = sample.labels["model"], sample.labels["le"].removesuffix(".0")
        if model != previous["model"]:
            previous = {"le": "0", "count": 0.0, "model": model}
        if sample.value > previous["count"]:
            table.add_row(model, f"{previous['le']} < n ≤ {upper}", f"{sample.value - previous['count']:.0f}")
        previous = {"le": upper, "count": sample.value, "model": model}
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
