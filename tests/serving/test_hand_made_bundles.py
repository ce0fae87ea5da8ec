"""A bundle.json that somebody edited: what the graph contradicts is refused, what no picture survives is told of each."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gaussport.cli import main
from gaussport.serving.predictions import NOT_FINITE
from gaussport.serving.runtime import Runtime
from tests.serving.conftest import encoded, picture, write_tiny

Edited = Callable[[Callable[[dict[str, Any]], None]], Path]


@pytest.fixture
def edited(tmp_path: Path) -> Edited:
    """`edited(change)`: a bundle whose bundle.json was changed by hand."""

    def make(change: Callable[[dict[str, Any]], None]) -> Path:
        bundle = write_tiny(tmp_path / "tiny")
        manifest = json.loads((bundle / "bundle.json").read_text())
        change(manifest)
        (bundle / "bundle.json").write_text(json.dumps(manifest))
        return bundle

    return make


@pytest.fixture
def one(tmp_path: Path) -> Path:
    path = tmp_path / "one.png"
    path.write_bytes(encoded(picture(1)))
    return path


@pytest.mark.parametrize(("side", "tensor"), [("input", "pixels"), ("output", "logits")])
@pytest.mark.parametrize("dtype", ["int64", "float16"])
def test_another_type_than_the_graphs_is_refused(
    edited: Edited, one: Path, capsys: pytest.CaptureFixture[str], side: str, tensor: str, dtype: str
) -> None:
    bundle = edited(lambda manifest: manifest[side].update(dtype=dtype))
    assert main(["classify", str(bundle), str(one)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert f"{tensor} of {bundle} is float32 in the graph and {dtype} in bundle.json" in err


@pytest.mark.parametrize(
    "change", [{"std": [1e-300, 1, 1]}, {"mean": [1, 1e300, 1]}, {"std": [1, 1, 1e-40]}, {"std": [1e300, 1, 1]}]
)
def test_means_that_no_pixel_survives_are_refused(
    edited: Edited, one: Path, capsys: pytest.CaptureFixture[str], change: dict[str, list[float]]
) -> None:
    bundle = edited(lambda manifest: manifest["preprocessing"].update(change))
    assert main(["classify", str(bundle), str(one)]) == 1
    assert "mean must be finite and std positive, also as float32" in capsys.readouterr().err


def test_an_answer_that_is_not_finite_is_an_error_of_its_picture(
    edited: Edited, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = edited(lambda manifest: None)
    paths = [tmp_path / f"{seed}.png" for seed in range(3)]
    for seed, path in enumerate(paths):
        path.write_bytes(encoded(picture(seed)))
    assert main(["classify", str(bundle), *map(str, paths), "--json"]) == 0
    sound = json.loads(capsys.readouterr().out)

    def overflowing(self: Runtime, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        logits = run(self, rows)
        logits[1, 0] = np.inf
        return logits

    run = Runtime.run
    monkeypatch.setattr(Runtime, "run", overflowing)
    assert main(["classify", str(bundle), *map(str, paths), "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [rows[0], rows[2]] == [sound[0], sound[2]]
    assert rows[1]["error"] == {"code": "not_finite", "message": NOT_FINITE}
    assert main(["classify", str(bundle), *map(str, paths)]) == 1
    assert "error" in capsys.readouterr().out
