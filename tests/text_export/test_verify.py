"""verify finds what is wrong with a text bundle, and what is right with a good one."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnx
import pytest

from gaussport.cli import main
from gaussport.errors import BundleError, ProofError
from gaussport.export.bundle.manifest import MODEL_FILE, STEP_FILE
from gaussport.export.bundle.store import Bundle, open_bundle
from gaussport.export.inputs import Inputs
from gaussport.export.precision.accuracy import Accuracy
from gaussport.export.precision.record import PrecisionRecord
from gaussport.export.sequence.padding import padding_proof
from gaussport.export.sequence.probes import TokenProbes
from gaussport.export.verification import blame
from gaussport.export.verification.checks import ask_all
from gaussport.export.verification.measurement import Changed, ClassScore, Measurement
from gaussport.export.verification.report.document import document_of
from gaussport.export.verification.report.markdown import markdown
from gaussport.export.verification.report.page import page
from gaussport.export.verification.sequences import streams_agree
from gaussport.export.verification.subject import Subject
from gaussport.export.verification.wish import VerifyWish
from tests.text_export.conftest import LABELS


def test_a_good_bundle_passes_every_check_with_its_checkpoint_and_data(
    bundle: Bundle, checkpoint: Path, texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["verify", str(bundle.path), "--checkpoint", str(checkpoint), "--data", str(texts), "--json"]
    assert main(words) == 0
    found = {check["check"]: check for check in json.loads(capsys.readouterr().out)["findings"]}
    assert {check["result"] for check in found.values()} == {"ok"}
    assert "at lengths 1, 2, 7, 32, 64, 65, 130" in found["batches"]["text"]
    assert "each text alone" in found["padding"]["text"]
    assert f"{bundle.manifest.stream.bytes_per_stream:,} bytes" in found["streams"]["text"]  # type: ignore[union-attr]
    assert "12 texts" in found["data"]["text"]
    assert "0 answers changed" in found["data"]["text"]


def test_a_report_of_a_model_of_text_calls_texts_texts(bundle: Bundle) -> None:
    changed = Changed(index=0, name="ham/1.txt", target=0, reference=0, found=1, tie=False)
    scores = (ClassScore("ham", 7, 5, 6), ClassScore("spam", 2, 2, 2))
    subject = Subject(bundle)
    subject.measurement = Measurement(
        "folder", 9, (), 7 / 9, scores, "PyTorch", 8 / 9, 8 / 9, changed=(changed,), things="texts"
    )
    document = document_of("bundle", [], subject, datetime.now(UTC))
    data = document["data"]
    assert (data["texts"], data["classes"][0]["texts"], data["confusion"][0]["texts"]) == (9, 7, 1)
    assert data["changed"][0]["text"] == "ham/1.txt"
    for form in (json.dumps(document), markdown(document, None), page(document, None)):
        assert "picture" not in form
        assert "ham/1.txt" in form
    measured = Accuracy("model.onnx", "folder", 9, 0.5, 0.5, 1.0, things="texts")
    record = PrecisionRecord("int8", {"int8": 1}, {}, (measured,), {}).as_json()
    assert record["accuracy"][0]["texts"] == 9
    assert "picture" not in json.dumps(record)


@pytest.mark.parametrize(
    ("part", "fault"),
    [("blocks.0.memory", "a stream"), ("blocks.0.recent", "a stream"), ("pooled", "a stream"), ("count", "a stream")],
)
def test_a_step_that_forgets_a_part_of_its_state_is_told(mutant: Callable[..., Path], part: str, fault: str) -> None:
    def forget(model: onnx.ModelProto) -> None:
        for node in model.graph.node:
            for index, name in enumerate(node.output):
                if name == f"next.{part}":
                    node.output[index] = "dropped"
        model.graph.node.append(onnx.helper.make_node("Identity", [f"state.{part}"], [f"next.{part}"]))

    subject = Subject(open_bundle(mutant(STEP_FILE, forget)))
    with pytest.raises(BundleError, match=fault):
        streams_agree(subject)


def test_the_first_wrong_layer_is_named(
    mutant: Callable[..., Path], checkpoint: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = onnx.load_model_from_string(bundle.read(MODEL_FILE))
    monkeypatch.setattr(blame, "export_onnx", lambda *_: fresh)  # tracing is slow and is not in question

    def turn(model: onnx.ModelProto) -> None:
        tensor = next(t for t in model.graph.initializer if t.name == "blocks.0.attn.k.weight.T")
        turned = -onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(turned, tensor.name))

    subject = Subject(open_bundle(mutant(MODEL_FILE, turn)), VerifyWish(checkpoint=checkpoint))
    findings = {finding.check: finding for finding in ask_all(subject)}
    assert findings["pytorch"].result == findings["layer"].result == "FAILED"
    assert findings["layer"].text.startswith("blocks.0.attn.k is the first layer to depart")
    assert "by their sign" in findings["layer"].text


class _Mixing:
    """Answers a row by what stands in the whole batch, padding too."""

    def run(self, inputs: Inputs) -> np.ndarray:
        (tokens,) = inputs.values()
        return np.repeat(tokens.mean(keepdims=True), len(tokens), 0).astype(np.float32)


def test_a_model_whose_answer_depends_on_the_batch_has_no_padding_proof() -> None:
    questions = TokenProbes(vocabulary=257, pad=256, longest=9, trained=4).questions(4)
    with pytest.raises(ProofError, match="differs from each text alone"):
        padding_proof({"mixing": _Mixing()}, questions, 256, "fp32").require()


def _csv(path: Path) -> None:
    path.write_text('text,label\n"two\nlines, and a comma",ham\nz,eggs\n', encoding="utf-8")


def _json_lines(path: Path) -> None:
    path.write_text('{"text": "naïve", "label": "toast"}\n\n{"label": "ham", "text": "x"}\n', encoding="utf-8")


@pytest.mark.parametrize(("name", "write"), [("data.csv", _csv), ("data.jsonl", _json_lines)])
def test_tables_of_texts_are_measured(bundle: Bundle, tmp_path: Path, name: str, write: Callable[[Path], None]) -> None:
    write(tmp_path / name)
    samples = Subject(bundle).samples.labelled(str(tmp_path / name), LABELS)
    assert samples.count == 2
    assert [LABELS[target] for target in samples.targets] == {"data.csv": ["ham", "eggs"]}.get(name, ["toast", "ham"])
    (shown, windows, unread), *rest = samples.readable()
    assert (shown, unread, rest) == ([0, 1], [], [])
    assert bytes(windows[0][0].astype(np.uint8)).decode() in ("two\nlines, and a comma", "naïve")


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("d.csv", "words,label\na,ham\n", "has no column text"),
        ("d.csv", "text,label\na,tea\n", "has the label 'tea', which is none of the model's"),
        ("d.csv", "", "has no column text"),
        ("d.csv", "text,label\n", "has no texts"),
        ("d.jsonl", "[1]\n", "line 1 is not an object with a text"),
        ("d.jsonl", "{\n", "cannot be read"),
        ("d.jsonl", b"\xff\n", "cannot be read"),
        ("d.txt", "words", "is no table"),
    ],
)
def test_tables_that_cannot_be_used_are_refused(
    bundle: Bundle, tmp_path: Path, name: str, content: str | bytes, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    subject = Subject(bundle)
    with pytest.raises(Exception, match=fault) as caught:
        subject.samples.labelled(str(tmp_path / name), LABELS)
    assert type(caught.value).__name__ == "DataError"
