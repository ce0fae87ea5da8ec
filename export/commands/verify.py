"""`gaussport verify BUNDLE`: prove a bundle again, against its checkpoint or another bundle if given."""

import argparse
from pathlib import Path

from rich.markup import escape

from gaussport.export.commands.output import say, shown, write_json
from gaussport.export.precision.wish import MNIST
from gaussport.export.verification.wish import DEFAULT_MAX_DROP, VerifyWish
from gaussport.export.wishes import check_plain, creation_time

_COLOURS = {"ok": "green", "FAILED": "bold red", "skipped": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the folder or .zip to verify")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="compare with this checkpoint in PyTorch")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the checkpoint's configuration, when it has none")
    parser.add_argument(
        "--model", metavar="PACKAGE.MODULE:FACTORY", help="what makes the checkpoint's module, if it is your own"
    )
    parser.add_argument("--against", type=Path, metavar="BUNDLE", help="compare with this other bundle, say the fp32 one")
    data = f"labelled pictures or texts as LABEL/FILE, texts as .csv or .jsonl with text and label, or {MNIST}"
    parser.add_argument("--data", metavar="FOLDER", help=data)
    parser.add_argument(
        "--max-drop",
        type=float,
        default=DEFAULT_MAX_DROP,
        metavar="POINTS",
        help="percentage points of accuracy that may be lost on them (default: %(default)s)",
    )
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="write the report: JSON, Markdown, one HTML page")
    parser.add_argument("--json", action="store_true", help="print the whole report as JSON")


def run(arguments: argparse.Namespace) -> int:
    wish = VerifyWish(
        arguments.checkpoint, arguments.config, arguments.against, arguments.data, arguments.max_drop, arguments.model
    )
    wish.check()
    check_plain(arguments.bundle)
    time = creation_time()

    from gaussport.errors import UsageError
    from gaussport.export.bundle.store import open_bundle
    from gaussport.export.calibration.pictures import check_pictures_suffice
    from gaussport.export.progress import Steps
    from gaussport.export.verification.checks import ask_all, checks
    from gaussport.export.verification.report import check_folder, document_of, write_reports
    from gaussport.export.verification.subject import Subject

    if arguments.report is not None:
        check_folder(arguments.report, arguments.bundle)
    findings = []
    bundle = open_bundle(arguments.bundle, check_hashes=False)
    with Steps(total=1 + len(checks(wish, bundle.manifest.takes_text))) as steps:
        if wish.data is not None:
            check_pictures_suffice(bundle.manifest.further_inputs)
        subject = Subject(bundle, wish, steps.watch)
        answers = ask_all(subject)
        while True:
            with steps.step("verifying"):
                finding = next(answers, None)
            if finding is None:
                break
            findings.append(finding)
            if not arguments.json:
                say(f"[{_COLOURS[finding.result]}]{finding.result:<8}[/] {finding.check:<10} {escape(finding.text)}")
    document = document_of(shown(arguments.bundle), findings, subject, time)
    if arguments.report is not None:
        try:
            written = write_reports(arguments.report, document, subject.sheet)
        except OSError as error:
            raise UsageError(f"{arguments.report} cannot be written: {error.strerror or error}") from error
        if not arguments.json:
            say(f"report   {escape(', '.join(shown(path) for path in written))}")
    if arguments.json:
        write_json(document)
    return 0 if document["ok"] else 1
