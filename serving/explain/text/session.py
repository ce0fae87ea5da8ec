"""One call of `gaussport explain` with texts: the numbers of each, and what holds over all of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gaussport.serving.explain.explainer import Explainer
from gaussport.serving.explain.operators.latent_memory_routing import RoutingView
from gaussport.serving.explain.selection import Selection
from gaussport.serving.explain.text.components import TokenCensus
from gaussport.serving.explain.text.document import ExplainedText, explained_texts
from gaussport.serving.explain.text.page import drawn

_BYTES = {byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}
"""What bytes that are part of a character are called; the others are called by their character."""

Censuses = dict[tuple[str, int], TokenCensus]


@dataclass
class TextSession:
    """`most` texts are drawn, where a page is wanted; all are counted. `folder` is where the tokenizer lies."""

    explainer: Explainer
    paths: Sequence[Path]
    selection: Selection
    folder: Path | None = None
    page: bool = False
    most: int = 8
    _censuses: Censuses = field(default_factory=dict)

    def documents(self) -> Iterator[dict[str, Any]]:
        """Each text's explanation as JSON, with `drawn`, HTML by layer and head, when it is drawn; or its error."""
        for number, text in enumerate(explained_texts(self.explainer, self.paths, self.folder)):
            yield self._document(text, number)

    def _document(self, text: ExplainedText, number: int) -> dict[str, Any]:
        if text.error is not None:
            return {"text": str(text.path), "error": {"code": text.error.code, "message": str(text.error)}}
        layers = self.explanation(text)
        chosen = self._chosen(text)
        for view in chosen:
            for head in self.selection.heads_of(view):
                self._count(self._censuses, view, head, text, number)
        figures = {"drawn": drawn(text, chosen, self.selection)} if self.page and number < self.most else {}
        return {
            "text": str(text.path),
            "tokens": len(text.tokens),
            "windows": text.windows,
            "predictions": list(text.predictions),
            "layers": layers,
            **figures,
        }

    def explanation(self, text: ExplainedText) -> list[dict[str, Any]]:
        """Each chosen layer of one text as JSON."""
        own: Censuses = {}
        for view in self._chosen(text):
            for head in self.selection.heads_of(view):
                self._count(own, view, head, text, 0)
        return [self._layer(view, own, str(text.path)) for view in self._chosen(text)]

    def _chosen(self, text: ExplainedText) -> list[RoutingView]:
        return [view for view in self.selection.views(text.views) if isinstance(view, RoutingView)]

    def _count(self, censuses: Censuses, view: RoutingView, head: int, text: ExplainedText, number: int) -> None:
        spec = self.explainer.manifest.tokenization
        words = dict(_BYTES) if spec.kind == "bytes" else {}
        new = TokenCensus(view.components, spec.vocabulary, words)
        censuses.setdefault((view.name, head), new).add(view, head, text.tokens, text.pieces, number)

    def _layer(self, view: RoutingView, own: Censuses, name: str) -> dict[str, Any]:
        heads = [
            {"head": head, **view.head_numbers(head), "components": own[view.name, head].to_json([name])}
            for head in self.selection.heads_of(view)
        ]
        return {"name": view.name, "operator": view.operator, **view.layer_numbers(), "heads": heads}

    def over_all(self) -> dict[str, Any] | None:
        """What holds over all texts; None for one."""
        if len(self.paths) < 2 or not self._censuses:
            return None
        names = [str(path) for path in self.paths]
        found = self._censuses.items()
        heads = [{"layer": layer, "head": head, **census.to_json(names)} for (layer, head), census in found]
        return {"texts": len(self.paths), "heads": heads}
