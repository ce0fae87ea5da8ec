"""`gaussport explain BUNDLE TEXT…` for a bundle that reads text."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from gaussport.errors import UsageError
from gaussport.export.bundle.store import Bundle
from gaussport.serving.explain.explainer import Explainer
from gaussport.serving.explain.selection import Selection
from gaussport.serving.explain.text.page import page
from gaussport.serving.explain.text.session import TextSession
from gaussport.serving.report import pictures_in, with_progress


def run(arguments: argparse.Namespace, bundle: Bundle, selection: Selection, threads: int | None) -> int:
    """Explain the texts that the arguments name.

    Raises:
        UsageError: there are none, or the output cannot be.
        ServingError, BundleError: the bundle cannot be explained here.
    """
    paths = pictures_in(arguments.images)  # the files in folders, whatever they are
    if not paths:
        raise UsageError("there are no texts in the folders given: name files, or folders that hold some")
    if arguments.cell is not None or arguments.tokens:
        raise UsageError("--cell and --tokens are for pictures, and this model reads text: leave them out")
    output = None if arguments.output is None else _checked(arguments.output)
    explainer = Explainer(bundle, threads)
    selection.check_layers(explainer.layers)
    with _tokenizer_of(bundle) as folder:
        session = TextSession(explainer, paths, selection, folder, output is not None, arguments.pictures)
        documents = list(with_progress(session.documents(), len(paths), "explaining"))
    over_all = session.over_all()
    if output is not None:
        _write(output, page(f"What {explainer.manifest.name} looked at", documents, over_all))
    if arguments.json:
        _write_json(explainer.manifest.name, documents, over_all)
    else:
        _tell(documents, arguments.output)
    return int(any("error" in document for document in documents))


def _checked(path: Path) -> Path:
    """The file that the page is written to: the one that is named, or index.html in a folder."""
    suffix = path.suffix.lower()
    if suffix in (".png", ".svg"):
        raise UsageError(f"{path} is a figure, and a text is drawn as a page: give an .html file or a folder")
    if path.exists() and path.is_dir() == (suffix == ".html"):
        raise UsageError(f"{path} is {'a folder' if path.is_dir() else 'a file'} already: choose another path")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path} cannot be written: the folder {path.parent} does not exist, make it first")
    return path if suffix == ".html" else path / "index.html"


@contextmanager
def _tokenizer_of(bundle: Bundle) -> Iterator[Path | None]:
    """A folder with the bundle's tokenizer, which may lie in a zip; None for a model of bytes."""
    name = bundle.manifest.tokenization.file
    if not name:
        yield None
        return
    with TemporaryDirectory(prefix="gaussport-tokenizer-") as folder:
        (Path(folder) / name).write_bytes(bundle.read(name))
        yield Path(folder)


def _write(path: Path, text: str) -> None:
    try:
        if path.name == "index.html":
            path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def _write_json(model: str, documents: list[dict[str, Any]], over_all: dict[str, Any] | None) -> None:
    plain = [{key: value for key, value in document.items() if key != "drawn"} for document in documents]
    content = {"model": model, "texts": plain, "over_all": over_all}
    sys.stdout.buffer.write(orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
    sys.stdout.flush()


def _tell(documents: list[dict[str, Any]], output: Path) -> None:
    for document in documents:
        if "error" in document:
            print(f"{document['text']}: {document['error']['message']}", file=sys.stderr)  # noqa: T201
    good = sum("error" not in document for document in documents)
    if good or len(documents) > 1:
        print(f"{output}  {good} of {len(documents)} texts explained")  # noqa: T201
