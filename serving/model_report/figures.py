"""The report's diagrams, with matplotlib: confusion, reliability, differences by precision."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gaussport.serving.explain.drawing.canvas import ACCENT, SECOND

_NAMED = 40
"""Classes up to which a confusion matrix has their names and numbers on it."""


def confusion_figure(confusion: NDArray[np.int64], labels: Sequence[str]) -> Figure:
    """Rows are true classes, columns are answers, each row as a share; a column for no answer only if there is one."""
    shown = confusion if confusion[:, -1].any() else confusion[:, :-1]
    shares = shown / np.maximum(shown.sum(axis=1, keepdims=True), 1)
    named = len(labels) <= _NAMED
    side = min(10.0, 2.2 + 0.34 * len(labels)) if named else 7.0
    figure = Figure((side + 0.8, side), dpi=110, layout="constrained")
    ax = figure.subplots()
    image = ax.imshow(shares, cmap="Blues", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    figure.colorbar(image, ax=ax, label="share of the true class")
    ax.set_xlabel("answer")
    ax.set_ylabel("true class")
    if named:
        names = [label[:18] for label in labels]
        ax.set_xticks(range(shown.shape[1]), [*names, "none"][: shown.shape[1]], rotation=90, fontsize=7)
        ax.set_yticks(range(len(names)), names, fontsize=7)
        for row, column in zip(*np.nonzero(shown), strict=True):
            ink = "white" if shares[row, column] > 0.5 else "black"
            ax.text(column, row, str(shown[row, column]), ha="center", va="center", fontsize=6, color=ink)
    return figure


def reliability_figure(bins: Sequence[Mapping[str, Any]], error: float) -> Figure:
    """Accuracy beside confidence in each bin, against the diagonal of a calibrated model; below, where the pictures lie."""
    figure = Figure((5.0, 5.4), dpi=110, layout="constrained")
    top, bottom = figure.subplots(2, 1, height_ratios=(3, 1), sharex=True)
    top.plot([0, 1], [0, 1], color="grey", linestyle="dashed", linewidth=1)
    centres = [(entry["from"] + entry["to"]) / 2 for entry in bins]
    width = bins[0]["to"] - bins[0]["from"]
    top.bar(centres, [entry["accuracy"] for entry in bins], width, color=SECOND, edgecolor="white", label="accuracy")
    top.scatter(
        [entry["confidence"] for entry in bins],
        [entry["accuracy"] for entry in bins],
        color=ACCENT,
        s=14,
        zorder=3,
        label="at the bin's mean confidence",
    )
    top.set_xlim(0, 1)
    top.set_ylim(0, 1)
    top.set_ylabel("share right")
    top.set_title(f"expected calibration error {error:.4f}", fontsize=9)
    top.legend(fontsize=7, loc="upper left")
    bottom.bar(centres, [entry["pictures"] for entry in bins], width, color=SECOND, edgecolor="white")
    bottom.set_yscale("log")
    bottom.set_ylabel("pictures")
    bottom.set_xlabel("confidence in the answer")
    return figure


def differences_figure(compared: Sequence[Mapping[str, Any]]) -> Figure:
    """Ours less each other model's accuracy, in percentage points, with the interval of 95 %."""
    figure = Figure((6.5, 0.9 + 0.35 * len(compared)), dpi=110, layout="constrained")
    ax = figure.subplots()
    places = np.arange(len(compared))[::-1]
    centres = np.array([100 * entry["difference"] for entry in compared])
    ends = 100 * np.array([entry["difference_interval"] for entry in compared])
    ax.hlines(places, ends[:, 0], ends[:, 1], color=SECOND)
    ax.scatter(centres, places, color=ACCENT, zorder=3, s=18)
    ax.axvline(0, color="grey", linestyle="dashed", linewidth=1)
    ax.set_yticks(places, [f"{entry['model']} ({entry['precision']})" for entry in compared], fontsize=8)
    ax.set_ylim(-0.7, len(compared) - 0.3)
    ax.set_xlabel("this model less that one, percentage points")
    return figure
