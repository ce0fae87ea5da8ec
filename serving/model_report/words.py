"""How numbers are written, in page and card alike."""

from collections.abc import Mapping, Sequence
from typing import Any


def percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def with_interval(share: Mapping[str, Any]) -> str:
    """A share and its interval, as `97.70 % (96.57 % to 98.46 %)`."""
    return f"{percent(share['share'])} ({between(share['interval'], percent)})"


def between(interval: Sequence[float], written: Any) -> str:
    return f"{written(interval[0])} to {written(interval[1])}"


def points(difference: float) -> str:
    """A difference of shares in percentage points."""
    return f"{100 * difference:+.2f}"


def p_value(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"


def verdict(entry: Mapping[str, Any]) -> str:
    """Whether two models differ by more than chance explains, in words."""
    if entry["only_ours_right"] == entry["only_theirs_right"]:
        return "neither is better"
    better = "this one" if entry["difference"] > 0 else "that one"
    return f"{better} is better" if entry["mcnemar_p"] < 0.05 else "no difference beyond chance"


def summary(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The numbers that stand first, each with its name."""
    scores = document["scores"]
    rows = [
        ("accuracy", with_interval(scores["accuracy"])),
        (f"in the best {scores['top_k']['k']}", with_interval(scores["top_k"])),
        ("balanced accuracy (mean recall of the classes)", percent(scores["balanced_accuracy"])),
        ("macro F1", f"{scores['macro_f1']:.4f}"),
        ("log loss, nats", f"{scores['log_loss']:.4f}"),
        ("Brier score, 0 to 2", f"{scores['brier']:.4f}"),
        ("expected calibration error", f"{scores['expected_calibration_error']:.4f}"),
        ("mean confidence", percent(scores["mean_confidence"])),
    ]
    if scores["no_answer"]:
        rows.append(("pictures without an answer (NaN or infinite)", f"{scores['no_answer']:,}"))
    return rows


def attention_columns(heads: Sequence[Mapping[str, Any]]) -> list[str]:
    """The numbers that every head has."""
    return [name for name in heads[0] if name not in ("layer", "head")] if heads else []


def number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
