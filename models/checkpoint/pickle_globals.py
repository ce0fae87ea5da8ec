"""Which names a pickle would import, read from its opcodes without running one."""

import itertools
import pickletools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile

_LIMIT_OPCODES = 2_000_000
_STRINGS = ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING")
_MEMO_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")
_MEMO_GETS = ("GET", "BINGET", "LONG_BINGET")


@dataclass(frozen=True)
class PickledGlobal:
    """A module's attribute that unpickling would look up, and the key of the outermost dict under which it does."""

    name: str
    field: str | None


def pickled_globals(path: Path) -> list[PickledGlobal]:
    """The globals of the pickle, or of the pickle in the torch.save zip, at `path`; as many as can be read."""
    try:
        with ZipFile(path) as archive:
            inner = next(name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl")
            with archive.open(inner) as file:
                return list(_globals(file))
    except (BadZipFile, StopIteration):
        with path.open("rb") as file:
            return [found for _ in range(5) for found in _globals(file)]  # torch's old format is five pickles in a row


def _globals(file: IO[bytes]) -> Iterator[PickledGlobal]:
    """Follows strings, marks and the memo only: enough to know names, and the key that a value stands under."""
    depth = 0
    strings: dict[int, list[str]] = {}  # the newest at each depth of marks; at depth 1 the last is the key being filled
    memo: dict[int, str | None] = {}
    pushed: str | None = None
    try:
        for opcode, argument, _ in itertools.islice(pickletools.genops(file), _LIMIT_OPCODES):
            name = opcode.name
            if name in _MEMO_PUTS or name == "MEMOIZE":
                memo[len(memo) if name == "MEMOIZE" else int(str(argument))] = pushed
                continue
            pushed = str(argument) if name in _STRINGS else memo.get(int(str(argument))) if name in _MEMO_GETS else None
            here = strings.setdefault(depth, [])
            if pushed is not None:
                here.append(pushed)
                del here[:-8]
            elif name == "MARK":
                depth += 1
                strings[depth] = []
            elif pickletools.markobject in opcode.stack_before:
                depth = max(0, depth - 1)
            elif name in ("GLOBAL", "INST"):
                yield PickledGlobal(".".join(str(argument).split(" ", 1)), _field(strings, depth))
            elif name == "STACK_GLOBAL" and len(here) > 1:
                attribute, module = here.pop(), here.pop()
                yield PickledGlobal(f"{module}.{attribute}", _field(strings, depth))
    except (
        ValueError,
        IndexError,
        KeyError,
        EOFError,
        OverflowError,
        struct.error,
    ):  # a damaged or foreign end: what was read counts
        return


def _field(strings: dict[int, list[str]], depth: int) -> str | None:
    outermost = strings.get(min(depth, 1))
    return outermost[-1] if outermost else None
