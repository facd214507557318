"""Lines of files that records are made of: read, told apart, and those that are left out."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from shioenv.errors import ImportFileError
from shioenv.files.durable import atomic_write, storage_errors
from shioenv.grammar.library import load_grammars
from shioenv.grammar.parse import InputParser

REJECTED = "rejected.ndjson"
"""In a dataset's directory: what an import could not take, with line and reason."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A line that is not in the dataset, and why."""

    line: int
    """From 1."""
    text: str
    """Its beginning."""
    reason: str
    file: str | None = None
    """Where several were imported."""

    @classmethod
    def of(cls, line: int, content: bytes, reason: str, file: str | None = None) -> Rejection:
        """The rejection of a line that holds this."""
        return cls(line, content[:2000].decode("utf-8", "replace")[:500], reason, file)

    def to_json(self) -> dict[str, Any]:
        """The rejection for programs."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def reasons(rejected: Iterable[Rejection]) -> dict[str, int]:
    """How many lines were rejected for what, the most frequent first."""
    return dict(Counter(rejection.reason for rejection in rejected).most_common())


def told(rejected: Iterable[Rejection], most: int | None = None) -> str:
    """The most frequent reasons for a message."""
    counts = list(reasons(rejected).items())[:most]
    return ", ".join(f"{count} lines: {reason}" for reason, count in counts) or "it is empty"


def write_rejections(directory: Path, rejected: Sequence[Rejection]) -> None:
    """Keeps what was rejected beside the records; nothing where there is none."""
    if rejected:
        lines = (json.dumps(rejection.to_json(), ensure_ascii=False) for rejection in rejected)
        content = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")
        with storage_errors(directory):
            atomic_write(directory / REJECTED, content)


def read_lines(
    path: str | Path, pass_on: Callable[[bytes], None] = lambda line: None
) -> Iterator[tuple[int, bytes]]:
    """The lines of a file without their ends, numbered from 1.

    `pass_on` is given each of them whole, before anything is done with it. Errors: ImportFileError.
    """
    try:
        with Path(path).open("rb") as lines:
            for number, line in enumerate(lines, 1):
                pass_on(line)
                yield number, line.rstrip(b"\r\n")
    except OSError as error:
        raise ImportFileError(f"{path} cannot be read: {error.strerror}") from None


class Distinct:
    """Tells inputs apart that were there before, by what of a digest suffices."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def refusal(self, content: bytes) -> str | None:
        """Why the input is not taken; None where it is there for the first time."""
        key = hashlib.sha256(content).digest()[:16]
        if key in self._seen:
            return "the same input as an earlier one"
        self._seen.add(key)
        return None


@cache
def shipped_parser() -> InputParser:
    """Takes inputs apart by all shipped grammars, for no system in particular."""
    return InputParser(load_grammars())
