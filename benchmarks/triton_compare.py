"""The same requests to a real Triton and to this project's server, and where the answers differ.

    pip install --no-deps --target build/triton nvidia-pytriton==0.7.0       # 55 MB, a CPU is enough
    python benchmarks/triton_compare.py BUNDLE --triton build/triton [--markdown] [--all]

BUNDLE is a bundle folder, as .demo/mnist-ssog after `make demo`. Both servers run its model on the same ONNX Runtime, so
that the numbers must agree too. Ends with exit code 1 if an answer differs and `triton_cases.py` gives no reason for it.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
from rich.console import Console
from rich.table import Table
from triton_cases import HEAD_LENGTH, MISTAKE, Case, cases
from triton_server import Triton

from gaussport.export.bundle.store import open_bundle

TOLERANCE = 1e-4  # of logits; the two batch differently
WIDTH = 60


@dataclass(frozen=True)
class Heard:
    """One server's answer: its status (0 when it gave none), and its content as Python values."""

    status: int
    content: Any

    @property
    def failed(self) -> bool:
        return self.status == 0 or self.status >= 500

    def __str__(self) -> str:
        if self.status == 0:
            return f"no answer ({self.content})"
        error = self.content.get("error") if isinstance(self.content, dict) else None
        return f"{self.status} {error}" if error else str(self.status)


@dataclass(frozen=True)
class Judged:
    """One request, both answers, and what differs between them: nothing where it is empty."""

    case: Case
    triton: Heard
    ours: Heard
    difference: str

    @property
    def reason(self) -> str:
        """Why the difference is meant to be."""
        return MISTAKE if self.triton.failed and 400 <= self.ours.status < 500 else self.case.reason


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("--triton", type=Path, required=True, metavar="DIR", help="where nvidia-pytriton was installed")
    parser.add_argument("--markdown", action="store_true", help="a table for docs/protocol.md: the differences")
    parser.add_argument("--all", action="store_true", help="show the cases without a difference too")
    arguments = parser.parse_args()
    found = []
    manifest = open_bundle(arguments.bundle).manifest
    with (
        tempfile.TemporaryDirectory() as folder,
        Triton(arguments.bundle, arguments.triton, Path(folder)) as triton,
        _ours(arguments.bundle) as ours,
    ):
        for case in cases(manifest):
            theirs = _ask(triton.url, case)
            if not triton.ensure_running():
                theirs = Heard(0, "it crashed")
            found.append((case, theirs, _ask(ours, case)))
    judged = [Judged(case, theirs, said, _differences(theirs, said)) for case, theirs, said in found]
    if arguments.markdown:
        _as_markdown(judged)
    else:
        _as_table([row for row in judged if row.difference or arguments.all])
    return _summary(judged)


def _summary(judged: "list[Judged]") -> int:
    differ = [row for row in judged if row.difference]
    unexplained = [row.case.name for row in differ if not row.reason]
    failed, faults = (
        sum(heard.failed for heard in side) for side in zip(*((row.triton, row.ours) for row in judged), strict=True)
    )
    sys.stdout.write(f"\n{len(judged)} requests, {len(differ)} answered otherwise; 5xx or no answer: ")
    sys.stdout.write(f"Triton {failed}, gaussport {faults}\n")
    for name in unexplained:
        sys.stdout.write(f"no reason is given for the difference: {name}\n")
    return int(bool(unexplained or faults))


@contextlib.contextmanager
def _ours(bundle: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "gaussport", "serve", str(bundle), "--port", "0", "--threads", "1", "--allow-load"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        assert process.stdout is not None
        yield process.stdout.readline().partition(" on ")[2].split()[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _ask(url: str, case: Case) -> Heard:
    try:
        with httpx.Client(base_url=url, trust_env=False, timeout=20) as client:
            response = client.request(case.method, case.path, content=case.body, headers=case.headers)
    except httpx.HTTPError as error:
        return Heard(0, type(error).__name__)
    return Heard(response.status_code, _content(response))


def _content(response: httpx.Response) -> Any:
    """JSON as it is; binary outputs as the numbers or texts that they hold."""
    if not response.content:
        return None
    size = int(response.headers.get(HEAD_LENGTH, len(response.content)))
    try:
        head = orjson.loads(response.content[:size])
    except orjson.JSONDecodeError:
        return response.text
    tail = response.content[size:]
    for output in head.get("outputs", []) if isinstance(head, dict) else []:
        length = output.get("parameters", {}).get("binary_data_size")
        if length is not None:
            raw, tail = tail[:length], tail[length:]
            output["data"] = np.frombuffer(raw, "<f4").tolist() if output["datatype"] == "FP32" else _texts(raw)
            output["parameters"].pop("binary_data_size")
    return head


def _texts(raw: bytes) -> list[str]:
    found = []
    while raw:
        size = int.from_bytes(raw[:4], "little")
        found.append(raw[4 : 4 + size].decode())
        raw = raw[4 + size :]
    return found


def _differences(triton: Heard, gaussport: Heard) -> str:
    """What differs, in a few words; empty when nothing does. The words of errors are each server's own."""
    if triton.status != gaussport.status:
        return "status"
    if triton.status >= 400:
        both = isinstance(triton.content, dict) and isinstance(gaussport.content, dict)
        return "" if both and "error" in triton.content and "error" in gaussport.content else "body"
    return ", ".join(_unlike("", triton.content, gaussport.content))


def _unlike(path: str, theirs: Any, ours: Any) -> Iterator[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys()):
            if key not in ours and theirs[key] not in ({}, [], ""):
                yield f"{path}{key} is not there"
            elif key not in theirs and ours[key] not in ({}, [], ""):
                yield f"{path}{key} is added"
            elif key in theirs and key in ours:
                yield from _unlike(f"{path}{key}.", theirs[key], ours[key])
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from _unlike(f"{path}{index}.", one, other)
    elif not _equal(theirs, ours):
        yield path.strip(".") or "body"


def _equal(theirs: Any, ours: Any) -> bool:
    if isinstance(theirs, str) and isinstance(ours, str) and theirs.count(":") >= 2:
        theirs, ours = theirs.split(":", 1), ours.split(":", 1)
        return theirs[1] == ours[1] and _equal(float(theirs[0]), float(ours[0]))
    if isinstance(theirs, int | float) and isinstance(ours, int | float):
        return abs(theirs - ours) <= TOLERANCE
    return bool(theirs == ours)


def _as_table(rows: list[Judged]) -> None:
    table = Table("request", "Triton", "gaussport", "differs in", "reason")
    for row in rows:
        reason = row.reason if row.difference else ""
        table.add_row(row.case.name, _short(row.triton), _short(row.ours), row.difference[:WIDTH], reason)
    Console(width=200).print(table)


def _as_markdown(rows: list[Judged]) -> None:
    """The differences by their reasons, as docs/protocol.md has them."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        if row.difference:
            changes = reasons.setdefault(row.reason, {})
            changes.setdefault(_change(row), []).append(row.case.name[:30])
    sys.stdout.write("| why gaussport differs | Triton → gaussport: requests |\n|---|---|\n")
    for reason, changes in reasons.items():
        cells = (f"{change}: {', '.join(names)}" for change, names in changes.items())
        sys.stdout.write(f"| {reason} | {'; '.join(cells)} |\n")


def _change(row: Judged) -> str:
    if row.triton.status != row.ours.status:
        return f"{row.triton.status or 'crash'} → {row.ours.status}"
    return row.difference if len(row.difference) <= WIDTH else f"{row.difference[:WIDTH]}…"


def _short(heard: Heard) -> str:
    line = " ".join(str(heard).split())
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


if __name__ == "__main__":
    sys.exit(main())
