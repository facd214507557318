"""Own grammars: the files of a directory that stand beside the shipped ones.

A file with the name of a shipped grammar takes that grammar's place: the programs of another system
may have other options. Somebody else may have made the directory, so everything in it has a bound.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from shioenv.errors import UsageError
from shioenv.files.regular import read_regular

VARIABLE = "SHIOENV_GRAMMARS"
"""The variable that names the directory where nobody names it otherwise."""

MOST = 1000
"""Grammars in one directory at most (ours)."""

LARGEST = 1 << 20
"""Bytes of one grammar at most (ours); the largest shipped one has 20,000."""

_NAME = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.+\[-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class OwnGrammars:
    """A directory of grammars as it is now."""

    directory: Path
    names: tuple[str, ...]
    """The names of its grammars, sorted."""
    sha256: str
    """SHA-256 of the names and the contents of its grammars, in hexadecimal."""


def own_grammars(directory: str | Path | None = None) -> OwnGrammars | None:
    """The grammars in `directory`, by default in `$SHIOENV_GRAMMARS`; None where neither is given.

    Each file `NAME.grammar` is a grammar, and all else in the directory is left alone. Errors:
    UsageError where the directory cannot be read or holds no grammar. UsageError too for more than
    `MOST` grammars, and for a name that no command has. Other files that are refused have more than
    `LARGEST` bytes, are not regular, or are links that lead out of the directory.
    """
    chosen = directory or os.environ.get(VARIABLE)
    if not chosen:
        return None
    place = Path(chosen)
    try:
        files = sorted(place.glob("*.grammar")) if place.is_dir() else [*place.iterdir()]
    except OSError as error:
        raise UsageError(
            f"the grammars in {place} cannot be read: {error.strerror}",
            hint="--grammars names a directory of files NAME.grammar",
        ) from None
    if not files:
        raise UsageError(
            f"{place} holds no grammar",
            hint=f"shioenv grammar draft COMMAND > {place}/COMMAND.grammar writes a first one",
        )
    if len(files) > MOST:
        raise UsageError(
            f"{place} holds {len(files):,} grammars", hint=f"at most {MOST:,} in one directory"
        )
    digest = hashlib.sha256()
    for file in files:
        if not _NAME.match(file.stem):
            raise UsageError(
                f"{str(file)!r}: no command has this name",
                hint="letters, digits and _ . + - [ make a name of at most 64 characters",
            )
        content = content_of(file)
        digest.update(f"{file.stem}\0{len(content)}\0".encode() + content)
    return OwnGrammars(place, tuple(file.stem for file in files), digest.hexdigest())


def content_of(file: Path) -> bytes:
    """The bytes of a grammar's file. Errors: UsageError where it cannot be read, or is too large.

    UsageError too for a link that leads out of its directory: faults show parts of a file's lines,
    which may be no grammar's. FileNotFoundError passes through.
    """
    try:
        content = read_regular(file, LARGEST)
        inside = file.resolve().is_relative_to(file.parent.resolve())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(
            f"the grammar {file} cannot be read: {error.strerror}",
            hint="a grammar is a regular file of text",
        ) from None
    if not inside:
        raise UsageError(
            f"the grammar {file} is a link that leads out of its directory",
            hint="copy the file, or name the directory where it is",
        )
    return content
