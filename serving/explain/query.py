"""The query parameters of `/v1/explain`, and what they may cost."""

import re
from dataclasses import dataclass
from typing import Literal, Self

from starlette.datastructures import QueryParams

from gaussport.errors import UsageError
from gaussport.serving.errors import RequestError
from gaussport.serving.explain.operators import View
from gaussport.serving.explain.selection import Selection, parse_cell
from gaussport.serving.query import ClassifyQuery

MOST_HEADS = {"json": 96, "png": 36}
"""Heads, over all layers, that one request may ask about: some milliseconds each as numbers, some forty as a drawing."""


LONGEST = 4096
"""Characters of a parameter, at most."""
FORMS = {
    "layers": (r"^([^,]+(,[^,]+)*)?$", "names or numbers from 0, separated by commas"),
    "heads": (r"^([0-9]{1,5}(,[0-9]{1,5})*)?$", "whole numbers from 0, separated by commas"),
    "cell": (r"^[0-9]{1,5},[0-9]{1,5}$", "ROW,COLUMN, two whole numbers from 0"),
}
"""By parameter: its form, which the schema states too, and how an error says it."""


@dataclass(frozen=True)
class ExplainQuery:
    """What is asked, of which model, by when. `seen` adds the picture as the model saw it, `tokens` all tokens' tensors."""

    model: str | None
    version: str | None
    timeout_ms: float | None
    selection: Selection
    format: Literal["json", "png"]
    tokens: bool
    seen: bool

    @classmethod
    def of(cls, given: QueryParams) -> Self:
        """RequestError `bad_parameter` names the first at fault and never echoes its value."""
        common = ClassifyQuery.of(given)
        format = given.get("format", "json")
        if format not in ("json", "png"):
            raise RequestError("parameter format: give json or png", "bad_parameter")
        return cls(
            common.model,
            common.version,
            common.timeout_ms,
            _selection(given),
            "png" if format == "png" else "json",
            _flag(given, "tokens"),
            _flag(given, "seen"),
        )

    def check_cost(self, views: list[View]) -> None:
        """RequestError when this is too much for one request, or asks for what is not there."""
        try:
            chosen = self.selection.views(views)
            heads = sum(len(self.selection.heads_of(view)) for view in chosen)
            for view in chosen:
                self.selection.cell_of(view)
        except UsageError as error:
            raise RequestError(str(error), "bad_parameter") from error
        most = MOST_HEADS[self.format]
        if heads > most:
            raise RequestError(
                f"{heads} heads are asked for and {most} can be had at once as {self.format}: choose with layers and heads",
                "bad_parameter",
            )


def _selection(given: QueryParams) -> Selection:
    for name, (pattern, words) in FORMS.items():
        text = given.get(name, "")
        if name in given and (len(text) > LONGEST or re.fullmatch(pattern, text) is None):
            raise RequestError(f"parameter {name}: give {words}", "bad_parameter")
    layers, heads = (tuple(part for part in given.get(name, "").split(",") if part) for name in ("layers", "heads"))
    cell = parse_cell(given["cell"]) if "cell" in given else None
    return Selection(layers, tuple(map(int, heads)), cell)


def _flag(given: QueryParams, name: str) -> bool:
    text = given.get(name, "false")
    if text not in ("true", "false"):
        raise RequestError(f"parameter {name}: give true or false", "bad_parameter")
    return text == "true"
