"""Both zoo models as bundles, traced once and not proved again: other tests prove exports."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from PIL import Image

from gaussport.export import work
from gaussport.export.bundle.manifest import EXPLAIN_FILE
from gaussport.export.bundle.store import Bundle, open_bundle, writing_bundle
from gaussport.export.precision.conversion import Conversion
from gaussport.export.precision.wish import PrecisionWish
from gaussport.export.progress import unwatched
from gaussport.export.trained import Trained
from gaussport.models import zoo
from gaussport.models.checkpoint import read_checkpoint

Traced = tuple[str, Trained, onnx.ModelProto]

DEPTH = {"mnist-ssog": 4, "mnist-gma": 2}
"""How many of each classifier's layers the tests take: tracing is slow."""


@pytest.fixture(scope="session")
def traced() -> Callable[[str], Traced]:
    """`traced(name)`: the zoo's classifier of that name, each traced once."""
    made: dict[str, Traced] = {}

    def get(name: str) -> Traced:
        if name not in made:
            made[name] = _trace(zoo.path(name))
        return made[name]

    return get


@pytest.fixture(scope="session")
def trained(traced: Callable[[str], Traced]) -> Callable[[str], Trained]:
    """`trained(name)`: the same in PyTorch."""
    return lambda name: traced(name)[1]


@pytest.fixture(scope="session")
def bundles(traced: Callable[[str], Traced], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Bundle]:
    """`bundles(name, precision="fp32")`: its bundle, each made once."""
    made: dict[tuple[str, str], Bundle] = {}

    def get(name: str, precision: str = "fp32") -> Bundle:
        if (name, precision) not in made:
            made[name, precision] = _bundle(*traced(name), precision, tmp_path_factory.mktemp("zoo") / name)
        return made[name, precision]

    return get


@pytest.fixture(scope="session")
def url(bundles: Callable[[str], Bundle], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server in a process of its own, of both models and of one as an older gaussport wrote it."""
    older = _without_explanation(bundles("mnist-gma"), tmp_path_factory.mktemp("older") / "older")
    served = [str(path) for path in (bundles("mnist-ssog").path, bundles("mnist-gma").path, older)]
    command = [sys.executable, "-m", "gaussport", "serve", *served, "--port", "0", "--threads", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().rpartition(" on ")[2].partition("  ")[0].strip()
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        yield client


def _without_explanation(bundle: Bundle, destination: Path) -> Path:
    with writing_bundle(destination) as draft:
        for name in set(bundle.manifest.files) - {EXPLAIN_FILE}:
            (draft.folder / name).write_bytes(bundle.read(name))
        draft.finish(lambda files: bundle.manifest.model_copy(update={"files": files, "name": "older"}))
    return destination


def _trace(checkpoint: Path) -> Traced:
    whole = read_checkpoint(checkpoint)
    depth = DEPTH[checkpoint.stem]
    kept = {
        name: tensor
        for name, tensor in whole.state_dict.items()
        if not name.startswith("blocks.") or int(name.split(".")[1]) < depth
    }
    trained = work.trained_classifier(replace(whole, config=replace(whole.config, depth=depth), state_dict=kept))
    return checkpoint.stem, trained, work.export_onnx(trained.module, trained.takes)


def _bundle(name: str, trained: Trained, model: onnx.ModelProto, precision: str, destination: Path) -> Bundle:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    conversion = Conversion(copy, {}, (), lambda _: copy)
    if precision != "fp32":
        calibration = _noise(destination.with_name("calibration")) if precision == "int8" else None
        wish = PrecisionWish(precision=precision, calibration_data=calibration)
        conversion = work.convert(copy, wish, trained.probes, trained.samples, unwatched)
    with writing_bundle(destination) as draft:
        written = work.write_model(conversion.model, draft.folder)
        work.write_explanation(draft.folder, written, work.constants_of(trained.module))
        now = datetime.now(UTC)
        draft.finish(lambda files: work.manifest_of(trained, conversion, name, 4, now, files))
    return open_bundle(destination)


def _noise(folder: Path) -> str:
    folder.mkdir()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)).save(folder / "noise.png")
    return str(folder)


@pytest.fixture
def pixels() -> NDArray[np.float32]:
    """[2, 1, 28, 28]: strokes rather than noise, so that heads have something to look at."""
    draw = np.random.default_rng(0).normal(0, 0.3, (2, 1, 28, 28))
    draw[0, 0, 5:24, 12:16] += 2.5
    draw[1, 0, 6:9, 6:22] += 2.5
    draw[1, 0, 9:24, 15:19] += 2.5
    return draw.astype(np.float32)


@pytest.fixture
def digit(tmp_path: Path) -> Path:
    """A picture of a stroke."""
    canvas = np.zeros((28, 28), dtype=np.uint8)
    canvas[5:24, 12:16] = 255
    path = tmp_path / "stroke.png"
    Image.fromarray(canvas).save(path)
    return path
