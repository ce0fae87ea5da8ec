"""A bundle's engine is one more model to compare; one that this machine cannot run is named with the reason.

No GPU here: the bundle's own model stands in for an engine that runs.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gaussport.export.bundle.engines import EngineRecord
from gaussport.export.bundle.manifest import MODEL_FILE, Manifest
from gaussport.export.bundle.store import Bundle
from gaussport.export.session import Session
from gaussport.export.verification import engines
from gaussport.export.verification.checks import verify_bundle
from gaussport.export.verification.report import document_of
from gaussport.export.wishes import creation_time

Mutant = Callable[..., Path]
NAME = "tensorrt-10.16.1-sm_86-fp32"


@pytest.fixture
def with_engine(mutant: Mutant, bundle: Bundle) -> Path:
    record = EngineRecord(
        builder="tensorrt",
        builder_version="10.16.1",
        architecture=86,
        precision="fp32",
        batches=(1, 8, 16),
        model_sha256=bundle.manifest.files[MODEL_FILE].sha256,
        plugin_layers=2,
    )

    def add(manifest: Manifest) -> Manifest:
        return manifest.model_copy(update={"engines": {NAME: record}})

    return mutant(manifest=add)


def test_an_engine_that_cannot_run_here_is_named_and_is_no_fault(with_engine: Path) -> None:
    findings = {finding.check: finding for finding in verify_bundle(with_engine)}
    assert {finding.result for finding in findings.values()} == {"ok"}
    assert findings["engines"].text.startswith(f"engines/{NAME} is not compared: ")
    assert "tensorrt" in findings["engines"].text


class _Engine:
    """The model itself, and a fault that is added to each logit."""

    fault = 0.0

    def __init__(self, bundle: Bundle, name: str) -> None:
        assert name == NAME
        self._session = Session(bundle.read(MODEL_FILE))

    def run(self, pixels: Any) -> Any:
        return self._session.run(pixels) + np.float32(self.fault)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_an_engine_that_runs_is_compared(
    with_engine: Path, checkpoint_path: Path, checkpoint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "ServedEngine", _Engine)
    findings = {f.check: f for f in verify_bundle(with_engine, checkpoint_path if checkpoint else None)}
    assert {finding.result for finding in findings.values()} == {"ok"}
    assert "runs here and is compared" in findings["engines"].text
    assert "1 engines among what was run" in findings["pytorch" if checkpoint else "inlined"].text


@pytest.mark.parametrize("fault", [100.0, np.nan])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_an_engine_that_answers_otherwise_fails_by_name(
    with_engine: Path, checkpoint_path: Path, checkpoint: bool, fault: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "ServedEngine", _Engine)
    monkeypatch.setattr(_Engine, "fault", fault)
    failed = {
        f.check: f.text for f in verify_bundle(with_engine, checkpoint_path if checkpoint else None) if f.result != "ok"
    }
    assert f"engines/{NAME}" in failed["inlined"]
    assert failed["layer"].startswith(f"engines/{NAME} differs although the model that it was built from ")
    assert ("pytorch" in failed) == checkpoint


def test_the_report_lists_what_was_not_compared(with_engine: Path) -> None:
    from gaussport.export.bundle.store import open_bundle
    from gaussport.export.verification.checks import ask_all
    from gaussport.export.verification.subject import Subject

    subject = Subject(open_bundle(with_engine))
    document = document_of("bundle", list(ask_all(subject)), subject, creation_time())
    assert [entry["name"] for entry in document["not compared"]] == [f"engines/{NAME}"]
