"""`gaussport verify BUNDLE`: prove a bundle again, against its checkpoint if given."""

import argparse
from dataclasses import asdict
from pathlib import Path

from rich.markup import escape

from gaussport.export.commands.output import say, shown, write_json
from gaussport.export.wishes import check_plain

_COLOURS = {"ok": "green", "FAILED": "bold red", "skipped": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the folder or .zip to verify")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="compare with this checkpoint in PyTorch")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the checkpoint's configuration, when it has none")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(arguments: argparse.Namespace) -> int:
    from gaussport.export.progress import Steps
    from gaussport.export.verification import CHECKS, WITH_CHECKPOINT, verify_bundle

    check_plain(arguments.bundle)
    findings = []
    with Steps(total=1 + len(CHECKS) + (0 if arguments.checkpoint is None else len(WITH_CHECKPOINT))) as steps:
        answers = verify_bundle(arguments.bundle, arguments.checkpoint, arguments.config)
        while True:
            with steps.step("verifying"):
                finding = next(answers, None)
            if finding is None:
                break
            findings.append(finding)
            if not arguments.json:
                say(f"[{_COLOURS[finding.result]}]{finding.result:<8}[/] {finding.check:<10} {escape(finding.text)}")
    good = all(finding.result == "ok" for finding in findings)
    if arguments.json:
        write_json({"bundle": shown(arguments.bundle), "ok": good, "findings": [asdict(finding) for finding in findings]})
    return 0 if good else 1
