"""The metrics of several replicas, as one page."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

pytest.importorskip("ray", reason="install gaussport[ray] to run a Ray cluster")

from gaussport.serving.cluster.metrics_board import Board, merged
from gaussport.serving.metrics import Metrics


def reported(images: int) -> str:
    metrics = Metrics()
    metrics.images.labels("mnist", "ok").inc(images)
    metrics.model("mnist", "1", "cpu").batch(images, 0.25)
    return metrics.text().decode()


def test_each_series_says_whose_it_is_and_none_is_lost() -> None:
    texts = {"a": reported(3), "b": reported(4)}
    samples = [s for family in text_string_to_metric_families(merged(texts).decode()) for s in family.samples]
    alone = [s for text in texts.values() for family in text_string_to_metric_families(text) for s in family.samples]
    assert len(samples) == len(alone) == len({(s.name, *sorted(s.labels.items())) for s in samples})
    images = {s.labels["replica"]: s.value for s in samples if s.name == "gaussport_images_total"}
    assert images == {"a": 3, "b": 4}
    sizes = [s.value for s in samples if s.name == "gaussport_batch_size_sum"]
    assert sizes == [3, 4]


def test_who_reports_no_more_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    board, now = Board(), 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    board.pin("a", "one")
    now = 114.0
    board.pin("b", "two")
    assert board.texts() == {"a": "one", "b": "two"}
    now = 116.0
    assert board.texts() == {"b": "two"}
