"""Ray clusters, simulated on this machine and real: machines are lost, versions rolled out, servers told to stop, and every
picture is answered rightly, once."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gaussport.cli import main
from gaussport.errors import ServingError
from gaussport.serving.cluster.connection import cluster
from gaussport.serving.cluster.quiet_ray import ray
from gaussport.serving.settings import Settings
from tests.cluster.conftest import WORDS, Machines, classified
from tests.cluster.load import KEY, Asking, Load

RAY = ("--engine", "ray")
SIZE = 2
PATIENCE_S = 100
"""For a machine that does other things too."""
DRAIN_S = 3
"""Longer than a question of readiness takes on such a machine: with half a second, all of them may miss the fall."""


def until(true: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait for it."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < patience_s, "it never came to be"
        time.sleep(0.1)


def ready(url: str) -> int:
    try:
        return httpx.get(f"{url}/v2/health/ready", timeout=DRAIN_S, trust_env=False).status_code
    except httpx.TransportError:
        return 0


def replicas_seen(url: str) -> set[str]:
    """Whose pictures `/metrics` counts, whichever replica was asked."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics", trust_env=False, timeout=PATIENCE_S).text)
    samples = [sample for family in families for sample in family.samples if sample.name == "gaussport_images_total"]
    return {sample.labels["replica"] for sample in samples if sample.value}


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found: int = free.getsockname()[1]
        return found


def ray_serve(machines: Machines, *words: str | Path) -> None:
    """Ray's own command."""
    command = [str(Path(sys.executable).parent / "serve"), *map(str, words), "--address", machines.dashboard]
    subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE_S)


def deploy(machines: Machines, bundle: Path, port: int, home: Path) -> None:
    """As a user would: our configuration file, Ray's command."""
    file = home / "serve.yaml"
    options = ["--engine", "ray", "--replicas", "2", "--port", str(port), "--max-delay-ms", "1", "--replica-gpus", "0.5"]
    file.write_bytes(
        subprocess.run([*WORDS, "serve", bundle, *options, "--print-ray-config"], capture_output=True, check=True).stdout
    )
    ray_serve(machines, "deploy", file)


def test_a_machine_lost_and_a_version_rolled_out_cost_no_answer(
    machines: Machines, bundles: tuple[Path, Path], pictures: list[Path], port: int, tmp_path: Path
) -> None:
    first, second = (classified(bundle, pictures) for bundle in bundles)
    url = f"http://127.0.0.1:{port}"
    deploy(machines, bundles[0], port, tmp_path)
    until(lambda: ready(url) == 200)

    with Load(url, pictures) as load:
        until(lambda: len(load.answers) > 30 or bool(load.failed))
        machines.lose(machines.workers[0])
        answered = len(load.answers)
        until(lambda: len(load.answers) > answered + 60 or bool(load.failed))
    assert not load.failed
    assert only(first, load.answers)
    assert load.sent > len(load.answers), "nothing was on its way to the machine that was lost: the test proves nothing"

    machines.workers.append(machines.add())
    with Load(url, pictures) as load:
        deploy(machines, bundles[1], port, tmp_path)
        until(lambda: bool(load.failed) or only(second, load.answers[-40:]))
        until(lambda: len(replicas_seen(url)) == 2)
    assert not load.failed
    assert all(only(first, [each]) or only(second, [each]) for each in load.answers)
    assert load.sent == len(load.answers), "a rollout needs no request to be sent again"
    ray_serve(machines, "shutdown", "--yes")


def only(model: list[dict[str, float]], answers: list[tuple[int, dict[str, float]]]) -> bool:
    """Whether each of these answers is this model's."""
    return bool(answers) and all(answer == pytest.approx(model[at], abs=1e-5) for at, answer in answers)


def test_a_machine_lost_in_the_middle_costs_no_picture(
    machines: Machines, bundles: tuple[Path, Path], pictures: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ["--engine", "ray", "--ray-address", machines.address, "--replicas", "2", "--part-size", str(SIZE)]
    command = [*WORDS, "classify", str(bundles[0]), str(pictures[0].parent), "-o", str(out), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while len(list(out.glob("part-*"))) < 4 and process.poll() is None:
        time.sleep(0.02)
    machines.lose(machines.workers[0])
    machines.workers.append(machines.add())
    assert len(list(out.glob("part-*"))) < len(pictures) // SIZE, "it was done before: the test proves nothing"
    said, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert f"{len(pictures)} pictures in {out}; 0 cannot be used" in said

    rows = [json.loads(line) for part in sorted(out.glob("part-*")) for line in part.read_text().splitlines()]
    assert [row["image"] for row in rows] == [str(path) for path in pictures]
    labels = [row["predictions"][0]["label"] for row in rows]
    assert labels == [max(model, key=model.__getitem__) for model in classified(bundles[0], pictures)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--workers", "2"), "--replicas"),
        (("--allow-load",), "one replica only"),
        (("--replicas", "3", "--max-replicas", "2"), "at least as many"),
        (("--provider", "cuda"), "--replica-gpus"),
        (("--replica-cpus", "1.5"), "whole number"),
        (("--port", "0", "--print-ray-config"), "--port 0"),
    ],
)
def test_what_replicas_cannot_heed_is_refused_before_anything_starts(
    bundles: tuple[Path, Path], options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(bundles[0]), *RAY, *options]) == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert len(errors.splitlines()) == 1


def test_a_port_that_is_taken_is_told_before_anything_starts(
    bundles: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", str(bundles[0]), *RAY, "--port", str(taken.getsockname()[1])]) == 1
    assert "choose another --port" in capsys.readouterr().err


def test_what_cannot_be_served_is_told_in_one_sentence(
    machines: Machines, bundles: tuple[Path, Path], tmp_path: Path
) -> None:
    cases = [
        ((tmp_path / "none",), 1, "does not exist"),
        ((bundles[0], "--max-batch", "99"), 2, "--max-batch"),
        ((bundles[0], "--replicas", "9"), 1, "the cluster has 2, "),
        (
            (bundles[0], "--provider", "cuda", "--replica-gpus", "0.5"),
            1,
            "the provider cuda is not in this ONNX Runtime",
        ),
    ]
    started = [
        subprocess.Popen(
            [*WORDS, "serve", *map(str, words), *RAY, "--ray-address", machines.address, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for words, _, _ in cases
    ]
    for process, (_, code, said) in zip(started, cases, strict=True):
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, said in errors, len(errors.splitlines())) == (code, True, 1), errors


@pytest.mark.parametrize(
    "fault", [Exception("The current node timed out during startup.\nAnd so on."), ConnectionError("no")]
)
def test_a_ray_that_does_not_start_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    def does_not_start(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(ray, "init", does_not_start)
    told = f"the Ray cluster of this machine is not to be had: {str(fault).splitlines()[0]}"
    with pytest.raises(ServingError) as caught, cluster(Settings()):
        pass
    assert str(caught.value) == told


def test_it_is_ready_when_it_says_so_and_drains_on_sigterm(bundles: tuple[Path, Path], pictures: list[Path]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    command = [*WORDS, "serve", str(bundles[0]), *RAY, "--port", url.rpartition(":")[2], "--drain-delay-s", str(DRAIN_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"GAUSSPORT_API_KEYS": KEY}) as process:
        seen = [0]
        while seen[-1] != 200:
            assert process.poll() is None, "it ended"
            seen.append(ready(url))
            time.sleep(0.05)
        assert set(seen[:-1]) <= {0, 404, 503}
        assert httpx.post(f"{url}/v1/classify", content=b"x", trust_env=False).status_code == 401, "keys reach the replicas"
        asking = Asking(url, pictures)
        while len(asking.outcomes) < 40:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        draining = [200]
        while process.poll() is None:
            draining.append(ready(url))
            time.sleep(0.05)
        asking.stop()
        assert process.returncode == 0
    outcomes, model = asking.outcomes, classified(bundles[0], pictures)
    assert outcomes[0][1] == 200, "the first request after it was ready is answered"
    assert 503 in draining, "readiness falls before the port closes"
    assert all(found == pytest.approx(model[index], abs=1e-5) for _, status, found, index in outcomes if status == 200)
    told = min(began for began, status, _, _ in outcomes if status == 503)
    lost = [status for began, status, _, _ in outcomes if began < told and status not in (200, 503)]
    assert not lost, "accepted, and not answered"
