"""`gaussport doctor [BUNDLE]`: say in words what this machine can run, and why not the rest."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from gaussport.doctor.finding import Finding

_COLOURS = {"ok": "green", "no": "yellow", "note": "dim"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", nargs="?", type=Path, metavar="BUNDLE", help="also say what of it can be served here")
    parser.add_argument("--json", action="store_true", help="write JSON for machines")


def run(arguments: argparse.Namespace) -> int:
    """0, or 1 when a bundle was given and no part of it can be served here."""
    from gaussport.doctor.bundle import bundle
    from gaussport.doctor.machine import machine, providers
    from gaussport.doctor.toolchain import builders, exporting, kernels
    from gaussport.gpu import driver

    found = driver()
    findings = [*machine(found), *providers(found), *exporting(), *kernels(), *builders(found)]
    served = True
    if arguments.bundle is not None:
        own = list(bundle(arguments.bundle, found))
        served = any(finding.state == "ok" for finding in own if finding.subject != "files")
        findings += own
    if arguments.json:
        document = {"findings": [asdict(finding) for finding in findings], "ok": served}
        sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    else:
        _show(findings)
    return 0 if served else 1


def _show(findings: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(4):
        table.add_column(overflow="fold")
    before = ""
    for finding in findings:
        part = finding.part if finding.part != before else ""
        before = finding.part
        state = Text("" if finding.state == "note" else finding.state, _COLOURS[finding.state])
        table.add_row(Text(part, "bold"), Text(finding.subject), state, Text(finding.text))
    Console(highlight=False, emoji=False).print(table)
