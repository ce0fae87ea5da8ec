"""One call of `gaussport explain`, picture by picture: numbers and figures of each, and what holds over all of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gaussport.models.image.decode import ImageLimits
from gaussport.serving.explain.explainer import Explainer
from gaussport.serving.explain.folder import Census, count
from gaussport.serving.explain.numbers import layer_explanations
from gaussport.serving.explain.output import Output
from gaussport.serving.explain.pictures import ExplainedPicture, explained_pictures, seen
from gaussport.serving.explain.seen import Picture
from gaussport.serving.explain.selection import Selection

_SHOWN_COMPONENTS = 12


@dataclass
class ExplainSession:
    """`most` pictures are drawn; all are counted."""

    explainer: Explainer
    paths: Sequence[Path]
    limits: ImageLimits
    selection: Selection
    output: Output | None = None
    tokens: bool = False
    most: int = 8
    _censuses: dict[tuple[str, int], Census] = field(default_factory=dict)
    _grids: dict[str, tuple[int, int]] = field(default_factory=dict)

    def documents(self) -> Iterator[dict[str, Any]]:
        """Each picture's explanation as JSON, with `figures`, content by caption, when it is drawn; or its error."""
        for number, picture in enumerate(explained_pictures(self.explainer, self.paths, self.limits)):
            yield self._document(picture, number)

    def _document(self, picture: ExplainedPicture, number: int) -> dict[str, Any]:
        if picture.error is not None:
            return {"image": str(picture.path), "error": {"code": picture.error.code, "message": str(picture.error)}}
        assert picture.pixels is not None
        chosen = self.selection.views(picture.views)
        self._grids |= {view.name: view.grid for view in chosen}
        count(self._censuses, chosen, number, picture.path.parent.name)
        figures = {}
        if self.output is not None and number < self.most:
            canvas = Picture.of(picture.pixels, self.explainer.manifest.preprocessing)
            figures = {"figures": self.output.figures(picture, canvas, self.selection)}
        return {
            "image": str(picture.path),
            "predictions": picture.predictions,
            "warnings": list(picture.warnings),
            "layers": layer_explanations(picture.views, self.selection, self.tokens),
            **figures,
        }

    def folder(self) -> dict[str, Any] | None:
        """What holds over all pictures, for models with responsibilities; None for one picture and for other models."""
        if len(self.paths) < 2 or not self._censuses:
            return None
        names = [str(path) for path in self.paths]
        heads = [
            {"layer": layer, "head": head, **census.to_json(names)}
            for (layer, head), census in self._censuses.items()
            if head in (self.selection.heads or (head,))
        ]
        figures = {} if self.output is None else {"figures": self._patches(heads)}
        return {"pictures": len(self.paths), "heads": heads, **figures}

    def _patches(self, heads: list[dict[str, Any]]) -> dict[str, bytes]:
        """The best patches of the busiest components: of the chosen layers, or of the last one."""
        from gaussport.serving.explain.drawing import rendered
        from gaussport.serving.explain.drawing.patches import patches_figure
        from gaussport.serving.explain.seen import Picture

        spec = self.explainer.manifest.preprocessing

        def picture(name: str) -> Picture:
            return Picture.of(seen(Path(name), spec, self.limits)[0], spec)

        drawn = heads if self.selection.layers else [head for head in heads if head["layer"] == heads[-1]["layer"]]
        figures = {}
        for head in drawn:
            busiest = sorted(range(len(head["usage"])), key=lambda component: -head["usage"][component])[:_SHOWN_COMPONENTS]
            figure = patches_figure(head, self._grids[head["layer"]], picture, busiest)
            figures[f"Top patches of {head['layer']}, head {head['head']}"] = rendered(figure, "png")
        return figures
