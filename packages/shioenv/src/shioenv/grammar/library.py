"""Grammars by name: the shipped ones, and own ones beside them.

An own grammar with the name of a shipped one takes its place: the programs of another system may
have other options. Somebody else may have made the directory of own grammars, so everything in it
has a bound.
"""

from __future__ import annotations

import gc
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from shioenv.errors import UnknownGrammarError, UsageError, did_you_mean, nearest
from shioenv.files.regular import read_regular
from shioenv.grammar.check import check, check_traits
from shioenv.grammar.examples import check_examples, check_values
from shioenv.grammar.faults import Fault, FaultyGrammarError
from shioenv.grammar.load import Loaded, read_grammar, read_header
from shioenv.grammar.symbols import Grammar, Header

COMMANDS = Path(__file__).parent / "commands"

PAPER: Final = (
    *("arch", "basename", "cat", "cd", "chgrp", "chmod", "chown", "comm", "cp", "cpio", "curl"),
    *("cut", "date", "dd", "df", "dir", "dirname", "dmesg", "du", "echo", "env", "ethtool"),
    *("export", "false", "file", "find", "fold", "free", "grep", "groups", "gzip", "head"),
    *("hostid", "id", "ip-addr", "ip-link", "ip-route", "last", "link", "ln", "logname", "ls"),
    *("lsblk", "lscpu", "mkdir", "mkfifo", "mktemp", "mv", "netstat", "nl", "nproc", "od"),
    *("paste", "ping", "printenv", "ps", "pwd", "readlink", "rev", "rm", "rmdir", "shred"),
    *("sort", "split", "stat", "tail", "tar", "tee", "touch", "tr", "true", "truncate", "ulimit"),
    *("uname", "unexpand", "uniq", "unlink", "uptime", "users", "vdir", "w", "wc", "wget", "who"),
    *("whoami", "xargs"),
)
"""The grammars of the paper's 86 commands (Table 5), sorted: what is drawn where none is named."""

SETS: Final = ("paper", "all")
"""The names that stand for several grammars: the paper's, and all that are shipped."""


def names_of_grammars(
    directory: Path = COMMANDS, own: OwnGrammars | None = None
) -> tuple[str, ...]:
    """The names of all grammar files in `directory` and of all own grammars, sorted."""
    names = {path.stem for path in directory.glob("*.grammar")}
    return tuple(sorted(names.union(own.names if own else ())))


def chosen_grammars(chosen: Iterable[str] = (), own: OwnGrammars | None = None) -> tuple[str, ...]:
    """The names of the grammars that are meant, each once: those of a set sorted, in its place.

    `chosen` are names of grammars and of `SETS`; none chosen is `paper`. Each set has all own
    grammars too. A name that no grammar has is left as it is. Errors: UsageError where an own
    grammar has the name of a set.
    """
    if own and not set(SETS).isdisjoint(own.names):
        raise UsageError(
            f"a grammar in {own.directory} has the name of a set of grammars",
            hint=f"{' and '.join(SETS)} stand for several grammars; rename the file",
        )
    names: dict[str, None] = {}
    for name in tuple(chosen) or ("paper",):
        if name == "paper":
            names |= dict.fromkeys(sorted({*PAPER, *(own.names if own else ())}))
        elif name == "all":
            names |= dict.fromkeys(names_of_grammars(own=own))
        else:
            names[name] = None
    return tuple(names)


def choosable() -> tuple[str, ...]:
    """The names of the sets and of the shipped grammars."""
    return *SETS, *names_of_grammars()


def load_grammar(
    name: str, *, versions: Mapping[str, str] | None = None, directory: Path = COMMANDS
) -> Grammar:
    """The grammar called `name`, checked.

    `versions` is `System.versions` of the target system. A package that `versions` lacks has the
    version of the manual line. A shipped grammar is read once in a process. Errors:
    UnknownGrammarError with the nearest name. FaultyGrammarError with all faults of the grammar.
    """
    if directory == COMMANDS:
        return _shipped(name, frozenset((versions or {}).items()))
    return _checked(name, versions, directory)


@lru_cache(maxsize=512)  # all shipped grammars for two systems
def _shipped(name: str, versions: frozenset[tuple[str, str]]) -> Grammar:
    return _checked(name, dict(versions), COMMANDS)


def _checked(name: str, versions: Mapping[str, str] | None, directory: Path) -> Grammar:
    path = directory / f"{name}.grammar"
    if not path.is_file():
        raise _unknown(name, directory)
    loaded = _read(path, versions)
    faults = (*loaded.faults, *check(loaded))
    if faults:
        raise FaultyGrammarError(faults)
    return loaded.grammar


def _unknown(name: str, directory: Path, own: OwnGrammars | None = None) -> UnknownGrammarError:
    known = names_of_grammars(directory, own)
    if directory == COMMANDS:
        hint = did_you_mean(name, known)
        if nearest(name, known) is None and re.fullmatch(r"[\w.+-]+", name):
            hint = f"shioenv grammar draft {name} > DIR/{name}.grammar, then --grammars DIR"
        return UnknownGrammarError(f"no grammar is called {name!r}", hint=hint)
    path, like = directory / f"{name}.grammar", nearest(name, known)
    hint = f"shioenv grammar draft {name} > {path} writes a first one"
    if like is not None:
        hint = f"did you mean {directory / like}.grammar?"
    return UnknownGrammarError(f"there is no file {path}", hint=hint)


def _read(path: Path, versions: Mapping[str, str] | None) -> Loaded:
    # bytes that are no text become U+FFFD, which is a fault of its line like any other
    text = content_of(path).decode("utf-8-sig", "replace").replace("\0", "\ufffd")
    return read_grammar(text, path.name, versions)


def load_grammars(
    names: Iterable[str] | None = None,
    *,
    versions: Mapping[str, str] | None = None,
    directory: Path = COMMANDS,
    own: OwnGrammars | None = None,
) -> tuple[Grammar, ...]:
    """These grammars (default: all), checked, in the order given (default: by name).

    `own` grammars stand beside those of `directory`, and before those of the same name. `versions`
    is as `load_grammar` takes it. Errors: UnknownGrammarError; FaultyGrammarError with the faults
    of *all* the files.
    """
    faults: list[Fault] = []
    with _uncollected():
        grammars = tuple(_faultless(names, versions, directory, faults, own))
    if faults:
        raise FaultyGrammarError(faults)
    return grammars


@contextmanager
def _uncollected() -> Iterator[None]:
    """The garbage collector is off inside. It would take a fifth of the time of loading grammars.

    Loading makes hundreds of thousands of objects, which all stay.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _faultless(
    names: Iterable[str] | None,
    versions: Mapping[str, str] | None,
    directory: Path,
    faults: list[Fault],
    own: OwnGrammars | None = None,
) -> Iterator[Grammar]:
    """The grammars without a fault; the faults of the other grammars are put into `faults`."""
    for name in names if names is not None else names_of_grammars(directory, own):
        there = own.directory if own and name in own.names else directory
        if own and not (there / f"{name}.grammar").is_file():
            raise _unknown(name, directory, own)
        try:
            yield load_grammar(name, versions=versions, directory=there)
        except FaultyGrammarError as error:
            faults += error.faults


@cache
def shipped_headers() -> Mapping[str, Header]:
    """The headers of the shipped grammars, by name; nothing else of the files is read."""
    return {
        name: read_header(file.read_text(encoding="utf-8"), file.name)
        for name in names_of_grammars()
        for file in [COMMANDS / f"{name}.grammar"]
    }


def check_grammars(
    names: Iterable[str] | None = None, *, directory: Path = COMMANDS
) -> tuple[Fault, ...]:
    """Every fault of these grammars (default: all), those of their examples and headers included.

    Nothing is executed. Errors: UnknownGrammarError.
    """
    faults: list[Fault] = []
    for grammar in _faultless(names, None, directory, faults):
        faults += [*check_examples(grammar), *check_values(grammar), *check_traits(grammar)]
    return tuple(faults)


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
