"""The folder of a job's answers.

    OUT/job.json            what was asked: bundle, options, how many pictures in how many parts
    OUT/inputs.jsonl        the pictures of each part, a line each
    OUT/part-00000.jsonl    the answers, part by part, in the order of the pictures
    OUT/summary.json        when every part is there

A part is a file that appears whole, under a name that follows from its pictures: whoever is killed has lost the parts that
it was at, and whoever takes the job up writes each missing part, so that no picture is answered twice or not at all.
"""

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from gaussport.errors import DataError, ServingError, UsageError
from gaussport.serving.offline.formats import FORMATS, Count, Format, appearing, counted
from gaussport.serving.offline.inputs import Columns, Part, cut

JOB_FILE, INPUTS_FILE, SUMMARY_FILE = "job.json", "inputs.jsonl", "summary.json"


class Asked(BaseModel):
    """What decides the answers. A folder holds the answers to one of these."""

    model_config = ConfigDict(frozen=True)

    model: str
    version: str
    model_sha256: str
    sources: tuple[str, ...]
    columns: Columns
    top_k: int
    format: str
    part_size: int


class _Begun(Asked):
    pictures: int
    parts: int


class Job:
    """A job that has begun, in its folder; made by `job_in`."""

    def __init__(self, folder: Path, begun: _Begun) -> None:
        self.folder, self.asked = folder, begun
        self.pictures, self.parts = begun.pictures, begun.parts
        self.format: Format = FORMATS[begun.format]

    def place(self, number: int) -> Path:
        """The file of a part."""
        return self.folder / f"part-{number:05}{self.format.suffix}"

    def done(self) -> Count:
        """What the parts that are there hold. DataError when one of them is damaged or not this job's."""
        found = [counted(self.place(number), self.format) for number, _ in self._all() if self.place(number).exists()]
        return Count(sum(each.pictures for each in found), sum(each.unusable for each in found))

    def missing(self) -> Iterator[tuple[int, Part]]:
        """Each part that has no file yet, with its number."""
        return ((number, part) for number, part in self._all() if not self.place(number).exists())

    def finish(self, total: Count) -> dict[str, Any]:
        """Write the summary."""
        summary = {"pictures": total.pictures, "unusable": total.unusable, "parts": self.parts, "model": self.asked.model}
        with appearing(self.folder / SUMMARY_FILE) as draft:
            draft.write_bytes(orjson.dumps(summary, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        return summary

    def _all(self) -> Iterator[tuple[int, Part]]:
        with (self.folder / INPUTS_FILE).open("rb") as lines:
            for number, line in enumerate(lines):
                yield number, Part.model_validate_json(line)


@contextmanager
def job_in(folder: Path, asked: Asked, paths: Sequence[Path]) -> Iterator[Job]:
    """The job of this folder, begun now if there is none, and nobody else's for the time of the block.

    Raises:
        UsageError: the folder holds another job or something else, another process is at it, or there are no pictures.
        ServingError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise ServingError(f"{folder} cannot be written: {error.strerror}; choose another -o") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"another process writes to {folder}: wait for it, or choose another -o") from error
        for left in folder.glob(".*.*"):  # of one that was killed
            left.unlink(missing_ok=True)
        begun = _begun(folder)
        if begun is None:
            if any(not entry.name.startswith(".") and entry.name != INPUTS_FILE for entry in folder.iterdir()):
                raise UsageError(f"{folder} holds something else: choose a new folder for -o")
            begun = _begin(folder, asked, paths)
        else:
            _check_same(folder, asked, begun)
        yield Job(folder, begun)


def _begun(folder: Path) -> _Begun | None:
    try:
        return _Begun.model_validate_json((folder / JOB_FILE).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise DataError(f"{folder / JOB_FILE} cannot be read: choose a new folder for -o") from error


def _begin(folder: Path, asked: Asked, paths: Sequence[Path]) -> _Begun:
    pictures = parts = 0
    with appearing(folder / INPUTS_FILE) as draft, draft.open("wb") as file:
        for part in cut(paths, asked.part_size):
            file.write(part.model_dump_json(exclude_defaults=True).encode() + b"\n")
            pictures, parts = pictures + len(part), parts + 1
    if not pictures:
        raise UsageError("there are no pictures in what was named: name files, folders or Parquet files that hold some")
    begun = _Begun(**asked.model_dump(), pictures=pictures, parts=parts)
    with appearing(folder / JOB_FILE) as draft:
        draft.write_text(begun.model_dump_json(indent=2) + "\n")
    return begun


def _check_same(folder: Path, asked: Asked, begun: _Begun) -> None:
    for name in Asked.model_fields:
        was, now = getattr(begun, name), getattr(asked, name)
        if was != now:
            raise UsageError(
                f"{folder} holds a job with another {name.replace('_', ' ')}: ask for the same again, or choose another -o"
            )
