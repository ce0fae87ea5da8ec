"""What an explanation becomes: figures and a page in a folder, one page, one figure, or JSON on standard output."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from gaussport.errors import UsageError
from gaussport.serving.explain import drawing
from gaussport.serving.explain.page import page
from gaussport.serving.explain.pictures import ExplainedPicture
from gaussport.serving.explain.selection import Selection

HEADS = "What each head looked at from the query cell, which is framed"
LAYERS = "Each layer as a whole"


@dataclass(frozen=True)
class Output:
    """Where figures go, and in which format."""

    path: Path
    kind: Literal["folder", "page", "figure"]
    format: str

    @classmethod
    def of(cls, path: Path, format: str, pictures: int) -> "Output":
        """Raises UsageError when it cannot be written, a ServingError when figures cannot be drawn: before any work."""
        drawing.require_matplotlib(", or ask for the numbers as JSON")
        suffix = path.suffix.lower().removeprefix(".")
        kind: Literal["folder", "page", "figure"] = (
            "figure" if suffix in drawing.FORMATS else "page" if suffix == "html" else "folder"
        )
        if kind == "figure" and pictures != 1:
            raise UsageError(f"{path} is one figure and there are {pictures} pictures: give a folder or an .html page")
        if path.exists() and path.is_dir() != (kind == "folder"):
            raise UsageError(f"{path} is {'a folder' if path.is_dir() else 'a file'} already: choose another path")
        if not path.absolute().parent.is_dir():
            raise UsageError(f"{path} cannot be written: the folder {path.parent} does not exist, make it first")
        return cls(path, kind, suffix if kind == "figure" else format)

    def figures(self, picture: ExplainedPicture, canvas: "drawing.Picture", selection: Selection) -> dict[str, bytes]:
        """The figures of one picture, by caption."""
        figures = {HEADS: drawing.heads_figure(canvas, picture.views, selection)}
        if self.kind != "figure":
            figures[LAYERS] = drawing.layers_figure(picture.views, selection)
        return {caption: drawing.rendered(figure, self.format) for caption, figure in figures.items()}

    def write(self, title: str, documents: Iterable[Mapping[str, Any]], folder: Mapping[str, Any] | None) -> None:
        """Write everything. Raises UsageError when the disk refuses."""
        documents = list(documents)
        try:
            if self.kind == "figure":
                self._write_figure(documents[0])
                return
            text = page(title, documents, folder, self.format)
            if self.kind == "page":
                self.path.write_text(text, encoding="utf-8")
                return
            self.path.mkdir(exist_ok=True)
            (self.path / "index.html").write_text(text, encoding="utf-8")
            for number, document in enumerate(documents):
                stem = f"{number}-{Path(document['image']).stem}"
                for name, content in zip(("heads", "layers"), document.get("figures", {}).values(), strict=False):
                    (self.path / f"{stem}-{name}.{self.format}").write_bytes(content)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror}") from error

    def _write_figure(self, document: Mapping[str, Any]) -> None:
        for content in document.get("figures", {}).values():
            self.path.write_bytes(content)


def write_json(model: str, documents: Iterable[Mapping[str, Any]], folder: Mapping[str, Any] | None) -> None:
    """Write the numbers to standard output."""
    plain = [{key: value for key, value in document.items() if key != "figures"} for document in documents]
    whole = None if folder is None else {key: value for key, value in folder.items() if key != "figures"}
    content = {"model": model, "pictures": plain, "folder": whole}
    sys.stdout.buffer.write(orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
    sys.stdout.flush()
