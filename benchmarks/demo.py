"""The main job, end to end: export the zoo's SSOG and GMA checkpoints, verify, serve, and classify 1,000 real pictures.

`make demo` runs it. It ends with exit code 0 only if every answer over HTTP is the one that PyTorch gives.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import torch
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from gaussport.models import zoo
from gaussport.models.checkpoint import build_classifier, read_checkpoint
from gaussport.models.data.mnist import write_held_out
from gaussport.models.image.decode import decode
from gaussport.models.image.preprocess import to_pixels
from gaussport.serving.client import Client

MODELS = ("mnist-ssog", "mnist-gma")
CONNECTIONS = 16
ONE_BY_ONE = 300  # pictures sent over one connection, each waiting for the answer to the one before
STOP_S = 30.0  # more than the server takes to drain

console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".demo"), help="where bundles and pictures go (default: .demo)")
    folder: Path = parser.parse_args().folder
    folder.mkdir(exist_ok=True)
    bundles = [export_and_verify(name, folder / name) for name in MODELS]

    written = write_held_out(folder / "digits")
    pictures = sorted((folder / "digits").glob("*/*.png"))
    console.print(f"\n[bold]{written} held-out MNIST digits[/] as PNG files in {folder / 'digits'}")
    with serving(bundles) as url:
        faithful = [classify_all(url, name, pictures) for name in MODELS]
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


def correct(answers: list[int], wanted: list[int]) -> int:
    return sum(answer == right for answer, right in zip(answers, wanted, strict=True))


def show_batches(url: str) -> None:
    """The batch sizes that the models saw, from the server's own metrics."""
    text = httpx.get(f"{url}/metrics").text
    family = next(x for x in text_string_to_metric_families(text) if x.name == "gaussport_batch_size")
    table = Table(title="batch sizes seen (from /metrics)", title_justify="left")
    for column in ("model", "images in a batch", "batches"):
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
