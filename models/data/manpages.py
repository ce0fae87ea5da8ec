"""Debian's manual pages in two dozen languages, as two folders of text: which section a page is of, and which language.

    python -m gaussport.models.data.manpages FOLDER [--man DIRECTORY]

fetches the packages with apt-get (as any user, nothing is installed) and writes FOLDER/section and FOLDER/language, each
laid out as train/<class>/<page> and held_out/<class>/<page>. With --man it takes the pages of a directory such as
/usr/share/man instead. A page is its roff source, less what states the answer or speaks of something else than the page:
comments (licences, translators' headers), the title line `.TH`, which names the section, the section's digit in every
reference such as printf(3), and lines with a mail or web address, which name the translators' teams.

Whether a page is held out is a matter of its name alone, so that all translations of a page, and pages of one name in
several sections, lie on one side.
"""

import argparse
import gzip
import hashlib
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gaussport.errors import DataError, GaussportError

LANGUAGES = "cs da de el es fi fr hu id it ja mk nb nl pl pt-br ro ru sr sv tr uk vi zh"
_WITH_DEV = "cs da de es fr it ja nl pl pt-br ru uk"
PACKAGES = (
    "manpages",
    "manpages-dev",
    *(f"manpages-{language}" for language in LANGUAGES.split()),
    *(f"manpages-{language}-dev" for language in _WITH_DEV.split()),
)
SECTIONS = {
    "1": "1-commands",
    "2": "2-system-calls",
    "3": "3-library",
    "4": "4-devices",
    "5": "5-files",
    "6": "6-games",
    "7": "7-overviews",
    "8": "8-administration",
}
LEAST_BYTES = 256
LEAST_PAGES = 50  # of a language
_HELD_OUT_OF = 5  # one page name of five is held out

_STATES = re.compile(rb"""^[.'] *(?:\\["#]|(?:TH|Dd|Dt|Os)\b)|[\w.]@\w|://""")
_IGNORED = re.compile(rb"^[.'] *ig\b.*?^\.\.[^\n]*$", re.MULTILINE | re.DOTALL)
_REFERENCE = re.compile(rb"\([1-9][A-Za-z]{0,4}\)")
_MDOC_REFERENCE = re.compile(rb"^(\.Xr +\S+) +[1-9]\w*", re.MULTILINE)


@dataclass(frozen=True)
class Page:
    """A manual page: its name without section, the section's digit, the language as its folder has it, cleaned source."""

    name: str
    section: str
    language: str
    text: bytes

    @property
    def held_out(self) -> bool:
        """The same for every page of this name."""
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8], "big") % _HELD_OUT_OF == 0


def pages(directory: Path) -> list[Page]:
    """The pages under a directory such as /usr/share/man, sorted; without those that only point to another (links and
    `.so`), those shorter than LEAST_BYTES, and copies.

    Raises:
        DataError: there are none.
    """
    found: list[Page] = []
    seen: set[bytes] = set()
    for file in sorted(directory.rglob("man[1-8]/*.[1-8]*")):
        if file.is_symlink() or not file.is_file():
            continue
        folder = file.parent.relative_to(directory).parent
        text = cleaned(_source(file))
        digest = hashlib.sha256(text).digest()
        if len(text) >= LEAST_BYTES and digest not in seen and len(folder.parts) < 2:
            seen.add(digest)
            language = folder.name or "en"
            found.append(Page(re.sub(r"\.[1-8].*$", "", file.name), file.parent.name[-1], language, text))
    if not found:
        raise DataError(f"{directory} has no manual pages: give a directory with man1, de/man1 and so on in it")
    return found


def cleaned(source: bytes) -> bytes:
    """Roff source without comments, title, ignored parts, addresses and the sections in references; empty where the page
    only names another."""
    if source.lstrip().startswith((b".so ", b"'so ")):
        return b""
    lines = _IGNORED.sub(b"", source).split(b"\n")
    text = b"\n".join(line for line in lines if not _STATES.search(line)).strip() + b"\n"
    return _MDOC_REFERENCE.sub(rb"\1", _REFERENCE.sub(b"()", text))


def write(pages: Sequence[Page], folder: Path) -> dict[str, Counter[str]]:
    """Write FOLDER/section and FOLDER/language, and return how many pages each has by part, `train` and `held_out`. A
    language with fewer than LEAST_PAGES pages is left out of the second.

    Raises:
        DataError: a folder is there already or cannot be written.
    """
    languages = Counter(page.language for page in pages)
    counts: dict[str, Counter[str]] = {"section": Counter(), "language": Counter()}
    try:
        for task in counts:
            (folder / task).mkdir(parents=True)
        for page in pages:
            classes = {"section": SECTIONS[page.section]}
            if languages[page.language] >= LEAST_PAGES:
                classes["language"] = page.language
            for task, label in classes.items():
                part = "held_out" if page.held_out else "train"
                place = folder / task / part / label
                place.mkdir(parents=True, exist_ok=True)
                (place / f"{page.name}.{page.section}.{page.language}").write_bytes(page.text)
                counts[task][part] += 1
    except OSError as error:
        raise DataError(f"{error.filename} cannot be written: {(error.strerror or str(error)).lower()}") from None
    return counts


def fetch(folder: Path) -> Path:
    """Fetch and unpack the packages into a folder, and return the directory of their manual pages.

    Raises:
        DataError: this is no Debian, or a package cannot be had.
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise DataError("the pages are Debian packages and apt-get is not here: run this on Debian, or give --man DIRECTORY")
    folder.mkdir(parents=True, exist_ok=True)
    _run(["apt-get", "download", *PACKAGES], folder)
    for package in sorted(folder.glob("*.deb")):
        _run(["dpkg-deb", "-x", package.name, "unpacked"], folder)
    return folder / "unpacked" / "usr" / "share" / "man"


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it gives no reason"])[-1]
        raise DataError(f"{command[0]} {command[1]} failed: {reason}")


def _source(file: Path) -> bytes:
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            return opened.read()
    except (OSError, EOFError) as error:
        raise DataError(f"the manual page {file} cannot be read: {error}") from None


def _lines(counts: dict[str, Counter[str]], folder: Path) -> Iterator[str]:
    for task, parts in counts.items():
        classes = len(list((folder / task / "train").iterdir()))
        yield f"{folder / task}: {parts['train']:,} pages to train on, {parts['held_out']:,} held out, {classes} classes\n"


def _main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m gaussport.models.data.manpages", description=(__doc__ or "")[:109])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--man", type=Path, metavar="DIRECTORY", help="take the pages here instead of Debian's packages")
    arguments = parser.parse_args(words)
    try:
        directory = arguments.man or fetch(arguments.folder / "packages")
        counts = write(pages(directory), arguments.folder)
    except GaussportError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.writelines(_lines(counts, arguments.folder))
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
