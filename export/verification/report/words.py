"""What the forms of the report have in common: the verdict, and how each measure is named and written."""

from collections.abc import Callable, Mapping
from typing import Any

from gaussport.export.proof import AS_WRITTEN


def verdict(document: Mapping[str, Any]) -> str:
    """One line: the bundle's name, and whether every check passed."""
    name = document.get("model", {}).get("name", document["bundle"])
    failed = [finding["check"] for finding in document["findings"] if finding["result"] == "FAILED"]
    return f"{name}: verified" if document["ok"] else f"{name}: NOT verified, {', '.join(failed)} failed"


def beside(proof: Mapping[str, Any]) -> str:
    """What a proof's models were compared with."""
    return "the model as written" if proof["reference"] == AS_WRITTEN else str(proof["reference"])


def measures() -> dict[str, Callable[[Mapping[str, Any]], str]]:
    """The columns of a proof's table: each measure's name, and how its value is written."""
    return {
        "max abs": lambda row: number(row["max_abs"]),
        "max rel": lambda row: number(row["max_rel"]),
        "mean abs": lambda row: number(row["mean_abs"]),
        "1 − cosine": lambda row: number(None if row["cosine"] is None else max(0.0, 1 - row["cosine"])),
        "top-1": lambda row: percent(row["top1_agreement"]),
        "top-5": lambda row: percent(row["top5_agreement"]),
        "not finite": lambda row: str(row["not_finite"]),
    }


def number(value: float | None) -> str:
    """An error; one that is not finite is null in the document."""
    return "not finite" if value is None else f"{value:.1e}"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f} %"
