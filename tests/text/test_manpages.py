"""The manual pages' data set: the answer is not in the text, every page is once in it, and translations stay together."""

import gzip
from pathlib import Path

import pytest

from gaussport.errors import DataError
from gaussport.models.data.manpages import LEAST_BYTES, Page, cleaned, pages, write
from gaussport.models.data.text_folder import text_folder

BODY = b".SH NAME\nls \\- list\n" + b"Lists what is in a directory.\n" * 12
SOURCE = b"""'\\" t
.\\" Copyright (c) 1993 Someone <someone@example.org>
.ig
 * Made from https://example.org/ls.xml
..
.TH LS 1 "September 2022" "GNU coutils" "User Commands"
.SH SEE ALSO
.BR printf (3),
\\fBstat\\fP(2), \\fBX\\fP(7x)
.Xr mount 8 ,
Full documentation: <https://example.org/ls>
Mail bugs to list@example.org
It is 3 (three) in section 2, f(10) and (a)
"""


def test_what_states_the_section_or_the_translators_is_gone() -> None:
    text = cleaned(SOURCE)
    assert text == (
        b".SH SEE ALSO\n.BR printf (),\n\\fBstat\\fP(), \\fBX\\fP()\n.Xr mount ,\n"
        b"It is 3 (three) in section 2, f(10) and (a)\n"
    )


def test_a_page_that_points_to_another_has_no_text() -> None:
    assert cleaned(b".so man3/printf.3\n") == b""


@pytest.fixture
def man(tmp_path: Path) -> Path:
    for name, body in {
        "man1/ls.1.gz": BODY,
        "de/man1/ls.1.gz": BODY.replace(b"Lists", b"Zeigt"),
        "man3/ls.3.gz": BODY.replace(b"directory", b"library"),
        "man1/copy.1.gz": BODY,  # the same text under another name
        "man1/short.1.gz": b".SH NAME\n",
        "man2/other.2.gz": BODY + b"other",
        "man8/bare.8": BODY + b"not compressed",
        "man1/pointer.1.gz": b".so man1/ls.1\n",
        "de/man5/a.conf.5.gz": BODY + b"dots",
    }.items():
        file = tmp_path / "man" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(body) if file.suffix == ".gz" else body)
    (tmp_path / "man/man1/dir.1.gz").symlink_to("ls.1.gz")
    return tmp_path / "man"


def test_every_page_is_there_once(man: Path) -> None:
    found = {(page.name, page.section, page.language) for page in pages(man)}
    assert found == {
        ("ls", "1", "de"),
        ("copy", "1", "en"),  # first of the two in the order of names
        ("ls", "3", "en"),
        ("other", "2", "en"),
        ("bare", "8", "en"),
        ("a.conf", "5", "de"),
    }
    assert all(len(page.text) >= LEAST_BYTES for page in pages(man))


def test_all_pages_of_one_name_are_on_one_side_and_one_name_of_five_is_held_out() -> None:
    names = [f"page{number}" for number in range(1000)]
    held_out = {name: Page(name, "1", "en", b"").held_out for name in names}
    assert 150 < sum(held_out.values()) < 250
    for name in names[:50]:
        assert {Page(name, s, language, b"x").held_out for s in "138" for language in ("de", "ja")} == {held_out[name]}


def test_the_folders_are_what_training_reads(tmp_path: Path) -> None:
    some = [Page(f"page{n}", "13"[n % 2], language, b"text %d" % n) for n in range(120) for language in ("en", "de")]
    rare = [Page(f"rare{n}", "1", "el", b"few") for n in range(3)]
    counts = write([*some, *rare], tmp_path / "data")
    assert sum(counts["section"].values()) == 243
    assert sum(counts["language"].values()) == 240  # too few in Greek to tell it
    sections, languages = (text_folder(tmp_path / "data" / task) for task in ("section", "language"))
    assert sections.labels == ("1-commands", "3-library")
    assert languages.labels == ("de", "en")
    assert (len(sections.train), len(sections.held_out)) == (counts["section"]["train"], counts["section"]["held_out"])
    train = {file.name.split(".")[0] for file in sections.train.files + languages.train.files}
    assert not train & {file.name.split(".")[0] for file in sections.held_out.files + languages.held_out.files}
    with pytest.raises(DataError, match="section cannot be written: file exists"):
        write(some, tmp_path / "data")


def test_a_directory_without_pages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no manual pages"):
        pages(tmp_path)
