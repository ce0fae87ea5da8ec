"""Builds the container image and proves it: `make image-test`, or `python -m benchmarks.image --help`.

Started read-only, as nobody's user, without capabilities, it must answer as `gaussport classify` does outside; SIGTERM under
load must lose nothing; torch and compilers must be absent; what cannot start must end with one sentence and its exit code.
"""

import argparse
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from benchmarks.image.build import MEGABYTE, Image, build, mounted
from benchmarks.image.container import Container

ROOT = Path(__file__).resolve().parents[2]
LIMIT_MB = 350
CLIENTS = 8
LOAD_S = 3.0

console = Console(highlight=False, soft_wrap=True, markup=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.image", description=__doc__)
    parser.add_argument("bundle", type=Path, help="a bundle inside the build context, as build/mnist-ssog")
    parser.add_argument("pictures", type=Path, nargs="+", help="pictures to classify")
    parser.add_argument("--target", choices=("cpu", "gpu-wheels", "plugins", "gpu"), default="cpu")
    wish = parser.parse_args()
    began = time.monotonic()
    image = build(wish.target, f"gaussport:{wish.target}", ROOT)
    console.print(f"built in {time.monotonic() - began:.0f} s")
    show_size(image)
    if wish.target != "cpu":
        return 0
    if sum(image.layers) > LIMIT_MB * MEGABYTE:
        raise SystemExit(f"the image's own layers are larger than {LIMIT_MB} MB")
    with mounted(image.name) as root:
        check_contents(root)
        check_refusals(root, image.config, wish.bundle)
        check_answers(root, image.config, wish.bundle, wish.pictures)
    check_context(wish.bundle, wish.pictures)
    return 0


def show_size(image: Image) -> None:
    layers = " + ".join(f"{size / MEGABYTE:.1f}" for size in image.layers)
    console.print(f"own layers {layers} = {sum(image.layers) / MEGABYTE:.0f} MB uncompressed")


def check_contents(root: Path) -> None:
    """Neither torch nor a compiler nor pip, no trace of the build, and a bill of materials that lists what is there."""
    packages = root / "opt/gaussport/lib/python3.11/site-packages"
    forbidden = [packages / name for name in ("torch", "onnx", "triton", "pip", "setuptools")]
    forbidden += [
        path
        for name in ("gcc", "cc", "g++", "c++", "clang", "make", "pip", "pip3")
        for path in root.glob(f"usr/bin/{name}*")
    ]
    if present := [str(path.relative_to(root)) for path in forbidden if path.exists()]:
        raise SystemExit(f"the image has {', '.join(present)}")
    if traces := [
        name for name in ("etc/pip.conf", "mnt/index-0") if (root / name).is_file() and (root / name).stat().st_size
    ]:
        raise SystemExit(f"the build left {', '.join(traces)} in the image")
    bill = json.loads((root / "opt/gaussport/sbom.cdx.json").read_text())
    listed = {component["purl"].partition("@")[0] for component in bill["components"]}
    installed = {
        f"pkg:pypi/{path.name.partition('-')[0].replace('_', '-').lower()}" for path in packages.glob("*.dist-info")
    }
    if missing := installed - listed:
        raise SystemExit(f"the bill of materials lacks {', '.join(sorted(missing))}")
    console.print(f"no torch, no compiler, no pip; bill of materials: {len(bill['components'])} components")


def check_refusals(root: Path, config: Mapping[str, Any], bundle: Path) -> None:
    """What cannot start ends with one sentence and exit code 1 or 2, whatever is wrong."""
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = str(taken.getsockname()[1])
        faults: list[tuple[int, list[str], dict[str, str]]] = [
            (1, ["/bundle"], {}),
            (1, ["/missing"], {}),
            (1, ["/mounted"], {"GAUSSPORT_PORT": port}),
            (1, ["/mounted"], {"GAUSSPORT_PROVIDER": "cuda"}),
            (2, ["/mounted"], {"GAUSSPORT_MAX_BATCH": "none"}),
        ]
        for code, arguments, environment in faults:
            variables = {"GAUSSPORT_LOG_FORMAT": "text", "GAUSSPORT_PORT": "0", **environment}
            got, said = Container(root, config, arguments, variables, mounts_of(root, bundle)).end()
            console.print(f"exit {got}: {said}")
            if got != code or len(said.splitlines()) != 1:
                raise SystemExit(f"exit code {code} and one sentence were wanted")


def mounts_of(root: Path, bundle: Path) -> dict[Path, str]:
    (root / "mounted").mkdir(exist_ok=True)
    return {bundle: "/mounted"}


def check_answers(root: Path, config: Mapping[str, Any], bundle: Path, pictures: list[Path]) -> None:
    words = [sys.executable, "-m", "gaussport", "classify", str(bundle), *map(str, pictures), "--json"]
    outside = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    began = time.monotonic()
    container = Container(root, config, ["/mounted"], {"GAUSSPORT_PORT": "0"}, mounts_of(root, bundle))
    try:
        line = container.first_line()
        if " on http" not in line:
            raise SystemExit(f"the container did not start: {container.end()}")
        url = f"http://127.0.0.1:{line.rpartition(':')[2]}"
        console.print(f"{line}, ready after {time.monotonic() - began:.1f} s")
        check_confinement(container.pid())
        check_health(root, container.pid(), url)
        same = sum(same_answer(url, picture, wanted) for picture, wanted in zip(pictures, outside, strict=True))
        console.print(f"{same} of {len(pictures)} pictures are classified as outside")
        if same != len(pictures):
            raise SystemExit("the container's answers are not those of gaussport classify")
        check_drain(container, url, pictures)
    finally:
        container.process.kill()


def check_context(bundle: Path, pictures: list[Path]) -> None:
    """The image that `gaussport container` leads to holds the bundle, and serves it without being told which."""
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder, "context")
        words = [sys.executable, "-m", "gaussport", "container", str(bundle), "-t", "gaussport:context", "-o", str(context)]
        subprocess.run(words, check=True)
        image = build("cpu", "gaussport:context", context, dockerfile=context / "Dockerfile")
    with mounted(image.name) as root:
        container = Container(root, image.config, environment={"GAUSSPORT_PORT": "0"})
        try:
            line = container.first_line()
            answer = httpx.post(
                f"http://127.0.0.1:{line.rpartition(':')[2]}/v1/classify", content=pictures[0].read_bytes(), trust_env=False
            )
            console.print(
                f"from gaussport container: {line}; {answer.status_code} {answer.json()['results'][0]['predictions'][0]}"
            )
            answer.raise_for_status()
            container.stop(signal.SIGTERM)
        finally:
            container.process.kill()


def check_confinement(pid: int) -> None:
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    facts = {"user": status["Uid"].split()[1], "capabilities": status["CapEff"], "new privileges": status["NoNewPrivs"]}
    root_mount = next(
        line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines() if line.split()[4] == "/"
    )
    facts["root"] = root_mount[5].split(",")[0]
    if facts != {"user": "10001", "capabilities": "0" * 16, "new privileges": "1", "root": "ro"}:
        raise SystemExit(f"the container is not confined: {facts}")
    console.print("read-only, user 10001, no capabilities, process 1 of its namespace")


def check_health(root: Path, pid: int, url: str) -> None:
    """HEALTHCHECK's own command, inside, beside the server."""
    for port, wanted in ((url.rpartition(":")[2], 0), ("1", 1)):
        words = [
            "nsenter",
            "--target",
            str(pid),
            "--mount",
            "--root",
            "/usr/bin/env",
            f"GAUSSPORT_PORT={port}",
            "/opt/healthcheck",
        ]
        if (code := subprocess.run(words, capture_output=True).returncode) != wanted:
            raise SystemExit(f"the health check of port {port} ends with {code}, not {wanted}")


def same_answer(url: str, picture: Path, wanted: dict[str, Any]) -> bool:
    answer = httpx.post(
        f"{url}/v1/classify", content=picture.read_bytes(), headers={"Content-Type": "image/png"}, trust_env=False
    )
    got = answer.json()["results"][0]["predictions"]
    return all(
        g["label"] == w["label"] and abs(g["probability"] - w["probability"]) < 1e-5
        for g, w in zip(got, wanted["predictions"], strict=True)
    )


def check_drain(container: Container, url: str, pictures: list[Path]) -> None:
    """SIGTERM while clients send: whoever was connected is answered; later ones are refused a connection."""
    outcomes: Counter[str] = Counter()
    lock, stopped = threading.Lock(), threading.Event()

    def send() -> None:
        bodies = [picture.read_bytes() for picture in pictures]
        with httpx.Client(trust_env=False, timeout=30) as client:
            count = 0
            while not stopped.is_set():
                count += 1
                try:
                    answer = client.post(f"{url}/v1/classify", content=bodies[count % len(bodies)])
                    outcome = str(answer.status_code)
                except httpx.ConnectError:
                    stopped.set()
                    outcome = "refused a connection"
                except httpx.TransportError as error:
                    outcome = f"lost: {type(error).__name__}"
                with lock:
                    outcomes[outcome] += 1

    threads = [threading.Thread(target=send) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(LOAD_S)
    seconds = container.stop(signal.SIGTERM)
    stopped.set()
    for thread in threads:
        thread.join()
    console.print(f"SIGTERM under load: ended after {seconds:.1f} s with {container.process.returncode}; {dict(outcomes)}")
    if container.process.returncode or set(outcomes) - {"200", "refused a connection"}:
        raise SystemExit("answers were lost")


if __name__ == "__main__":
    sys.exit(main())
