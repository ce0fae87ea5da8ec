"""What `gaussport inspect` shows of a checkpoint: what the file is, what was inferred and from where, what is missing."""

from pathlib import Path
from typing import Any

from gaussport.errors import CheckpointError, ConfigurationError
from gaussport.models.checkpoint.building import check_fit
from gaussport.models.checkpoint.contents import AnyCheckpoint
from gaussport.models.checkpoint.reading import checkpoint_of
from gaussport.models.checkpoint.surveying import Survey, survey_checkpoint
from gaussport.models.checkpoint.wishes import Wishes


def view(path: Path, config: Path | None, wishes: Wishes) -> tuple[dict[str, Any], dict[str, str]]:
    """The checkpoint as a JSON object and as rows for people. What is incomplete is shown as far as it goes.

    Raises:
        CheckpointError: the file cannot be read, or its numbers cannot be used.
        ConfigurationError: two statements about the model differ, or one is impossible.
    """
    survey = survey_checkpoint(path, config, wishes)
    try:
        checkpoint = checkpoint_of(survey, wishes=wishes)
    except ConfigurationError:
        if not survey.settled.missing:
            raise
        checkpoint = None
    misfit = None if checkpoint is None else _misfit(checkpoint)
    return _document(survey, checkpoint) | {"misfit": misfit}, _rows(survey, checkpoint, misfit)


def _document(survey: Survey, checkpoint: AnyCheckpoint | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "source": survey.source,
        "sha256": survey.sha256,
        "format": survey.stored.format,
        "weights": survey.chosen.kind,
        "weights_key": survey.chosen.key,
        "weight_sets": {one.key: one.kind for one in survey.sets},
        "prefixes": list(survey.named.prefixes),
        "left_out": list(survey.named.left_out),
        "changes": list(survey.laid.changes),
        "stored_dtypes": list(survey.stored_dtypes),
        "parameters": {name: list(tensor.shape) for name, tensor in survey.laid.tensors.items()},
        "fields": {
            fact.field: {"value": list(fact.value) if isinstance(fact.value, tuple) else fact.value, "from": fact.origin}
            for fact in survey.settled.facts
        },
        "missing": dict(survey.settled.missing),
    }
    if checkpoint is not None:
        document |= {
            "config": checkpoint.config.to_json(),
            "labels": list(checkpoint.labels),
            "preprocessing": checkpoint.preprocessing.model_dump(mode="json"),
            "assumed": list(checkpoint.assumed),
            "metrics": {name: number for name, number in checkpoint.metrics.items() if number - number == 0},
        }
    return document


def _misfit(checkpoint: AnyCheckpoint) -> str | None:
    """In what the weights are not those of the model that was inferred; None when they are."""
    try:
        check_fit(checkpoint)
    except (CheckpointError, ConfigurationError) as error:
        return str(error)
    return None


def _rows(survey: Survey, checkpoint: AnyCheckpoint | None, misfit: str | None) -> dict[str, str]:
    numbers = sum(tensor.numel() for tensor in survey.laid.tensors.values())
    rows = {
        "kind": f"checkpoint, {survey.chosen.kind} weights in {', '.join(survey.stored_dtypes)}",
        "file": f"{survey.stored.format}, {survey.stored.total_bytes:,} bytes",
        "weights": _weights(survey),
        "names": _names(survey),
        "parameters": f"{numbers:,} in {len(survey.laid.tensors)} tensors",
    }
    if misfit is not None:
        rows["fit"] = f"MISFIT: {misfit}"
    rows |= {fact.field: f"{_text(fact.value)}  ({fact.origin})" for fact in survey.settled.facts}
    rows |= {field: f"MISSING: {how}" for field, how in survey.settled.missing.items()}
    if checkpoint is not None:
        rows |= {
            "labels": _labels(checkpoint.labels) + _origin(survey.labels),
            "preprocessing": _pairs(checkpoint.preprocessing.model_dump(mode="json")) + _origin(survey.preprocessing),
            "assumed": ", ".join(checkpoint.assumed) or "nothing",
            "metrics": _pairs(checkpoint.metrics) or "none",
        }
    return rows | {"sha256": survey.sha256}


def _weights(survey: Survey) -> str:
    kinds = [one.kind for one in survey.sets]
    others = [
        f"{one} (--weights {one.kind if kinds.count(one.kind) == 1 else one.key})"
        for one in survey.sets
        if one is not survey.chosen
    ]
    return f"{survey.chosen}" + (f"; the file also has {', '.join(others)}" if others else "")


def _names(survey: Survey) -> str:
    parts = [f"without the prefix {''.join(survey.named.prefixes)}"] if survey.named.prefixes else []
    parts += [f"{len(survey.named.left_out)} left out as asked"] if survey.named.left_out else []
    return "; ".join([*parts, *survey.laid.changes]) or "as the model has them"


def _origin(document: Any) -> str:
    return "  (default)" if document is None else f"  ({document.who})"


def _labels(labels: tuple[str, ...]) -> str:
    return f"{len(labels)}: {', '.join(labels[:5])}" + (", …" if len(labels) > 5 else "")


def _pairs(mapping: Any) -> str:
    return ", ".join(f"{key} {_text(value)}" for key, value in mapping.items())


def _text(value: object) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, list | tuple) else "none" if value is None else str(value)
