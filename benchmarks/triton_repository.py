"""What `gaussport triton-repository` writes, served by a real Triton, beside `gaussport serve` of the same bundle.

    pip install --no-deps --target build/triton nvidia-pytriton==0.7.0       # 55 MB, a CPU is enough
    python benchmarks/triton_repository.py BUNDLE PICTURE … --triton build/triton

Compares pictures and tensors, classification by labels, one bad request among good ones, and the pace of both. Ends with
exit code 1 if an answer differs.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.http as client
from numpy.typing import NDArray
from rich.console import Console
from triton_server import Triton
from tritonclient.utils import InferenceServerException

import gaussport
from gaussport.export.bundle.manifest import Manifest
from gaussport.export.bundle.store import open_bundle
from gaussport.models.image.decode import decode
from gaussport.models.image.preprocess import to_pixels

TOLERANCE = 1e-4  # of logits; the two batch differently
CLIENTS = 16
PIECE = 8  # rows of a request
ROUNDS = 3
SECONDS = 4.0

console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("pictures", type=Path, nargs="+")
    parser.add_argument("--triton", type=Path, required=True, help="folder that pip installed nvidia-pytriton into")
    wish = parser.parse_args()
    manifest = open_bundle(wish.bundle).manifest
    pictures = [path.read_bytes() for path in wish.pictures]
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder, "models")
        write_repository(wish.bundle, models)
        with Triton(wish.bundle, wish.triton, Path(folder), models) as triton, ours(wish.bundle) as (url, pid):
            servers = {"Triton": triton.url, "gaussport serve": url}
            good = compare(servers, manifest, pictures) and compare_errors(servers, manifest)
            compare_pace(servers, {"Triton": triton.pid, "gaussport serve": pid}, manifest, pictures)
    return 0 if good else 1


def write_repository(bundle: Path, models: Path) -> None:
    """By the command itself. This Triton's Python has no site-packages: it is told where ours are."""
    path = f"{Path(gaussport.__file__).parents[1]}:{sysconfig.get_path('purelib')}"
    words = ["triton-repository", str(bundle), "-o", str(models), "--python-path", path, "--threads", "1"]
    subprocess.run([sys.executable, "-m", "gaussport", *words], check=True)


@contextlib.contextmanager
def ours(bundle: Path) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", "gaussport", "serve", str(bundle), "--port", "0", "--threads", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().rpartition(" on ")[2].strip(), process.pid
    finally:
        process.terminate()
        process.wait(30)


def compare(servers: dict[str, str], manifest: Manifest, pictures: Sequence[bytes]) -> bool:
    """Logits of both servers by both inputs, and Triton's label of the best class."""
    spec = manifest.preprocessing
    pixels = np.stack([to_pixels(decode(data, spec.background).rgb, spec) for data in pictures])
    answers = {}
    for name, url in servers.items():
        pieces = [pixels[start : start + PIECE] for start in range(0, len(pixels), PIECE)]
        answers[name, "pixels"] = np.concatenate([ask(url, manifest, pixels=piece) for piece in pieces])
        answers[name, "image"] = np.concatenate([ask(url, manifest, image=data) for data in pictures])
    wanted = answers["gaussport serve", "pixels"]
    good = True
    for (name, way), got in answers.items():
        off = float(np.abs(got - wanted).max())
        same = int((got.argmax(1) == wanted.argmax(1)).sum())
        console.print(f"{name}, {way}: {same} of {len(pictures)} classes equal, logits off by {off:.1e} at most")
        good &= off <= TOLERANCE and same == len(pictures)
    labels = [ask(url, manifest, pixels=pixels[:1], classes=1).ravel()[0].decode() for url in servers.values()]
    console.print(f"label of the first picture: {' and '.join(labels)}")
    return good and len({label.rpartition(":")[2] for label in labels}) == 1


def compare_errors(servers: dict[str, str], manifest: Manifest) -> bool:
    """Bytes that are no picture fail alone, in the middle of good requests."""
    pixels = np.zeros((1, *manifest.preprocessing.tensor_shape), np.float32)

    def one(url: str, index: int) -> str:
        try:
            if index % 4:
                ask(url, manifest, pixels=pixels)
            else:
                ask(url, manifest, image=b"no picture")
        except InferenceServerException as error:
            return str(error.message())
        return "answered"

    good = True
    for name, url in servers.items():
        with ThreadPoolExecutor(CLIENTS) as pool:
            outcomes = list(pool.map(one, [url] * 64, range(64)))
        failed = {index for index, outcome in enumerate(outcomes) if outcome != "answered"}
        console.print(f"{name}: {len(failed)} of 64 requests fail, of 16 that should: {outcomes[0]}")
        good &= failed == set(range(0, 64, 4))
    return good


def compare_pace(servers: dict[str, str], pids: dict[str, int], manifest: Manifest, pictures: Sequence[bytes]) -> None:
    """Requests of one row from several clients, the servers in turn; medians of the rounds. Processor time tells on a busy
    machine, where the rate does not."""
    pixels = np.zeros((1, *manifest.preprocessing.tensor_shape), np.float32)
    ways: dict[str, Callable[[str], Any]] = {
        "tensors": lambda url: ask(url, manifest, pixels=pixels),
        "pictures": lambda url: ask(url, manifest, image=pictures[0]),
    }
    for way, send in ways.items():
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in servers}
        for _ in range(ROUNDS):
            for name, url in servers.items():
                before = processor_seconds(pids[name])
                count = requests_done(lambda send=send, url=url: send(url))
                found[name].append((count / SECONDS, 1000 * (processor_seconds(pids[name]) - before) / count))
        for name, rounds in found.items():
            rate, cost = (statistics.median(each) for each in zip(*rounds, strict=True))
            console.print(f"{way} from {CLIENTS} clients, {name}: {rate:.0f}/s, {cost:.2f} ms of one core each")


def requests_done(send: Callable[[], Any]) -> int:
    stop = time.monotonic() + SECONDS

    def until_stop(_: int) -> int:
        count = 0
        while time.monotonic() < stop:
            send()
            count += 1
        return count

    with ThreadPoolExecutor(CLIENTS) as pool:
        return sum(pool.map(until_stop, range(CLIENTS)))


def processor_seconds(pid: int) -> float:
    """Of a process and its children, so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task").glob("*/children")
    below = sum(processor_seconds(int(child)) for file in children for child in file.read_text().split())
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + below


_own = threading.local()  # the client is not for several threads at once


def ask(url: str, manifest: Manifest, pixels: Any = None, image: bytes = b"", classes: int = 0) -> NDArray[Any]:
    """The output of one request: logits, or with `classes` as many "score:index:label"."""
    known: dict[str, tuple[client.InferenceServerClient, bool]] = _own.__dict__.setdefault("known", {})
    if url not in known:
        server = client.InferenceServerClient(url.removeprefix("http://"))
        known[url] = server, server.get_server_metadata()["name"] == "triton"
    server, is_triton = known[url]
    if pixels is not None:
        given = client.InferInput(manifest.input.name, list(pixels.shape), "FP32")
        given.set_data_from_numpy(pixels)
    elif is_triton:  # the bytes of the picture are a row
        given = client.InferInput("image", [1, len(image)], "UINT8")
        given.set_data_from_numpy(np.frombuffer(image, np.uint8)[None])
    else:
        given = client.InferInput("image", [1], "BYTES")
        given.set_data_from_numpy(np.array([image], object))
    wanted = client.InferRequestedOutput(manifest.output.name, class_count=classes)
    found: NDArray[Any] = server.infer(manifest.name, [given], outputs=[wanted]).as_numpy(manifest.output.name)
    return found


if __name__ == "__main__":
    sys.exit(main())
