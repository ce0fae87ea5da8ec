"""`gaussport inspect BUNDLE|CHECKPOINT`: say what a bundle or a checkpoint holds."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gaussport.export.commands.output import shown, write_json
from gaussport.export.commands.reading_options import add_reading_arguments, wishes_from
from gaussport.export.wishes import check_plain
from gaussport.models.checkpoint.early import refuse_early

if TYPE_CHECKING:
    from gaussport.export.bundle.engines import EngineRecord
    from gaussport.export.bundle.manifest import Manifest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="BUNDLE|CHECKPOINT", help="what to look into")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    add_reading_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from gaussport.export.bundle.draft import looks_like_a_bundle

    path: Path = arguments.path
    check_plain(path)
    if looks_like_a_bundle(path):
        document, rows = _bundle(path)
    else:
        wishes = wishes_from(arguments)
        refuse_early(path)  # before torch is imported
        from gaussport.export.commands.checkpoint_view import view

        document, rows = view(path, arguments.config, wishes)
    if arguments.json:
        write_json(document)
        return 0
    table = Table(title=escape(shown(path)), title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, text in rows.items():
        table.add_row(name, escape(text))
    Console(highlight=False, emoji=False).print(table)
    return 0


def _bundle(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The manifest, as JSON and as rows for people. Needs neither torch nor onnx."""
    from gaussport.export.bundle.store import open_bundle

    manifest = open_bundle(path, check_hashes=False).manifest
    document = manifest.model_dump(mode="json")
    origin, beside = manifest.provenance, document.get("further_inputs", ())
    rows = {
        "kind": f"bundle, schema version {manifest.schema_version}",
        "name": f"{manifest.name}, version {manifest.version}",
        "family": manifest.family,
        "configuration": _pairs(document["config"]),
        "input": _tensor(document["input"]),
        **{f"and {spec['name']}": f"{_tensor(spec)}, {spec['low']:g} to {spec['high']:g}" for spec in beside},
        "output": _tensor(document["output"]),
        "labels": _labels(manifest.labels),
        "preprocessing": _pairs(document["preprocessing"]),
        **_of_text(manifest),
        "largest batch": str(manifest.max_batch),
        "opset": ", ".join([str(manifest.opset), *(f"{d} {v}" for d, v in manifest.operators.items())]),
        "precision": manifest.precision,
        "metrics": _pairs(manifest.metrics) or "none",
        "checkpoint": f"{origin.checkpoint} ({origin.weights} weights), sha256 {origin.checkpoint_sha256[:12]}…",
        "assumed": ", ".join(origin.assumed) or "nothing",
        "made": f"{origin.created:%Y-%m-%d %H:%M:%S %Z} with {_pairs(origin.tools)}",
        "engines": ", ".join(map(_engine, manifest.engines.values())) or "none",
        "files": ", ".join(f"{name} ({record.bytes:,} bytes)" for name, record in manifest.files.items()),
    }
    return document, rows


def _engine(engine: "EngineRecord") -> str:
    lengths = "" if engine.lengths is None else f", of {engine.lengths[0]} to {engine.lengths[2]} tokens"
    return f"{engine.name} (batches {engine.batches[0]} to {engine.batches[2]}{lengths})"


def _of_text(manifest: "Manifest") -> dict[str, str]:
    """What only a model of text has to say."""
    if not manifest.takes_text:
        return {}
    spec, stream = manifest.tokenization, manifest.stream
    longer = {
        "windows": f"longer ones in windows that begin every {spec.stride:,} tokens, answers averaged",
        "truncate": "of longer ones the beginning",
        "refuse": "longer ones are refused",
    }[spec.long_documents]
    reads = f"up to {spec.max_tokens:,} tokens at once, {longer}"
    kept = "none: later tokens matter" if stream is None else f"{stream.bytes_per_stream:,} bytes each, whatever the length"
    return {"documents": reads, "streams": kept}


def _pairs(mapping: Any) -> str:
    return ", ".join(f"{key} ({_pairs(v)})" if isinstance(v, dict) else f"{key} {_plain(v)}" for key, v in mapping.items())


def _plain(value: object) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, list | tuple) else "none" if value is None else str(value)


def _tensor(spec: dict[str, Any]) -> str:
    return f"{spec['name']} {spec['dtype']} [{', '.join(map(str, spec['shape']))}]"


def _labels(labels: tuple[str, ...]) -> str:
    return f"{len(labels)}: {', '.join(labels[:5])}" + (", …" if len(labels) > 5 else "")
