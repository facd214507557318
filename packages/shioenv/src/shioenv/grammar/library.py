"""Grammars by name: the shipped ones and user-supplied ones.

A user-supplied grammar replaces a shipped one of the same name, since another system's programs may
have other options. The directory of user-supplied grammars may come from a third party, so all its
contents are limited in size and number.
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
from shioenv.grammar.load import Loaded, read_grammar, read_header
from shioenv.grammar.notation import Fault, FaultyGrammarError
from shioenv.grammar.symbols import Grammar, Header
from shioenv.grammar.validation import check

COMMANDS = Path(__file__).parent / "commands"

OF_SYSTEMS = Path(__file__).parent.parent / "systems" / "grammars"
"""Holds a directory of grammars for each system with programs that other systems lack."""

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
"""The grammars of the paper's 86 commands (Table 4), sorted; the default for drawing."""

SETS: Final = ("paper", "all")
"""Names for several grammars: the paper's, and all shipped ones."""


def names_of_grammars(
    directory: Path = COMMANDS, own: OwnGrammars | None = None
) -> tuple[str, ...]:
    """Return the names of the grammars in `directory` and of user-supplied ones, sorted."""
    names = {path.stem for path in directory.glob("*.grammar")}
    return tuple(sorted(names.union(own.names if own else ())))


def chosen_grammars(chosen: Iterable[str] = (), own: OwnGrammars | None = None) -> tuple[str, ...]:
    """Resolve names and sets to distinct names. Each set is replaced by its sorted names.

    `chosen` are names of grammars and of `SETS`; the default is `paper`. Each set includes all
    user-supplied grammars. Unknown names are kept. Errors: UsageError if a user-supplied grammar
    has the name of a set.
    """
    if own and not set(SETS).isdisjoint(own.names):
        raise UsageError(
            f"a grammar in {own.directory} has the name of a set of grammars",
            hint=f"{' and '.join(SETS)} are sets of grammars; rename the file",
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


def place_of_grammar(name: str, own: OwnGrammars | None = None) -> tuple[str, Path]:
    """Return name and directory of a grammar, given by name (user grammars first) or path."""
    path = Path(name)
    if path.suffix == ".grammar" or "/" in name:
        return path.name.removesuffix(".grammar"), path.parent
    return name, own.directory if own and name in own.names else COMMANDS


def choosable() -> tuple[str, ...]:
    """Return the names of the sets and of the shipped grammars."""
    return *SETS, *names_of_grammars()


def load_grammar(name: str, *, host_clock: bool = False, directory: Path = COMMANDS) -> Grammar:
    """Load and validate the grammar called `name`.

    `host_clock` is `System.host_clock` of the target system. Shipped grammars are cached, and only
    their syntax is checked. Errors: UnknownGrammarError with the nearest name. FaultyGrammarError
    with all faults of the grammar.
    """
    if directory == COMMANDS:
        return _shipped(name, host_clock)
    return checked_grammar(name, directory, host_clock=host_clock)


@lru_cache(maxsize=512)  # enough for all shipped grammars on two systems
def _shipped(name: str, host_clock: bool) -> Grammar:
    return checked_grammar(name, COMMANDS, host_clock=host_clock, whole=False)


def checked_grammar(
    name: str, directory: Path, *, host_clock: bool = False, whole: bool = True
) -> Grammar:
    """Parse a grammar and raise its faults; `whole` adds checks that span several lines.

    Errors: those of `load_grammar`.
    """
    path = directory / f"{name}.grammar"
    if not path.is_file():
        raise _unknown(name, directory)
    loaded = _read(path, host_clock)
    faults = (*loaded.faults, *(check(loaded) if whole else ()))
    if faults:
        raise FaultyGrammarError(faults)
    return loaded.grammar


def check_known(
    names: Iterable[str], directory: Path = COMMANDS, own: OwnGrammars | None = None
) -> None:
    """Check that grammars exist, without reading them. Errors: UnknownGrammarError."""
    for name in names:
        there = own.directory if own and name in own.names else directory
        if not (there / f"{name}.grammar").is_file():
            raise _unknown(name, directory, own)


def _unknown(name: str, directory: Path, own: OwnGrammars | None = None) -> UnknownGrammarError:
    known = names_of_grammars(directory, own)
    if directory == COMMANDS:
        hint = did_you_mean(name, known)
        if nearest(name, known) is None and re.fullmatch(r"[\w.+-]+", name):
            hint = (
                f"draft one: shioenv grammar draft {name} > DIR/{name}.grammar, then --grammars DIR"
            )
        return UnknownGrammarError(f"unknown grammar {name!r}", hint=hint)
    path, like = directory / f"{name}.grammar", nearest(name, known)
    hint = f"draft one: shioenv grammar draft {name} > {path}"
    if like is not None:
        hint = f"did you mean {directory / like}.grammar?"
    return UnknownGrammarError(f"no such file: {path}", hint=hint)


def _read(path: Path, host_clock: bool = False) -> Loaded:
    # undecodable bytes become U+FFFD, which is reported as a fault of the line
    text = read_grammar_file(path).decode("utf-8-sig", "replace").replace("\0", "\ufffd")
    return read_grammar(text, path.name, host_clock=host_clock)


def load_grammars(
    names: Iterable[str] | None = None,
    *,
    host_clock: bool = False,
    directory: Path = COMMANDS,
    own: OwnGrammars | None = None,
) -> tuple[Grammar, ...]:
    """Load and validate these grammars (default: all) in the given order (default: by name).

    `own` grammars are added to those of `directory`, and replace those of the same name.
    `host_clock` is as for `load_grammar`. Errors: UnknownGrammarError; FaultyGrammarError with the
    faults of *all* the files.
    """
    faults: list[Fault] = []
    with _uncollected():
        grammars = tuple(_faultless(names, host_clock, directory, faults, own))
    if faults:
        raise FaultyGrammarError(faults)
    return grammars


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable the garbage collector, which would take a fifth of the time of loading grammars."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _faultless(
    names: Iterable[str] | None,
    host_clock: bool,
    directory: Path,
    faults: list[Fault],
    own: OwnGrammars | None = None,
) -> Iterator[Grammar]:
    """Return the grammars without faults, and add the faults of the others to `faults`."""
    for name in names if names is not None else names_of_grammars(directory, own):
        there = own.directory if own and name in own.names else directory
        if own and not (there / f"{name}.grammar").is_file():
            raise _unknown(name, directory, own)
        try:
            yield load_grammar(name, host_clock=host_clock, directory=there)
        except FaultyGrammarError as error:
            faults += error.faults


@cache
def shipped_headers() -> Mapping[str, Header]:
    """Return the headers of the shipped grammars, by name, without parsing the rest."""
    return {
        name: read_header(file.read_text(encoding="utf-8"), file.name)
        for name in names_of_grammars()
        for file in [COMMANDS / f"{name}.grammar"]
    }


VARIABLE = "SHIOENV_GRAMMARS"
"""The environment variable for the default directory of user-supplied grammars."""

MOST = 1000
"""Maximum number of grammars in one directory (our choice)."""

LARGEST = 1 << 20
"""Maximum size of one grammar in bytes (our choice); the largest shipped one has 20,000."""

_NAME = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.+\[-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class OwnGrammars:
    """A snapshot of a directory of grammars."""

    directory: Path
    names: tuple[str, ...]
    """The names of its grammars, sorted."""
    sha256: str
    """SHA-256 (hex) of the names and the contents of its grammars."""


def own_grammars(directory: str | Path | None = None) -> OwnGrammars | None:
    """Read the grammars in `directory` or `$SHIOENV_GRAMMARS`; None if neither is set.

    A system's name instead of a path selects the shipped grammars of that system's own programs.
    Each file `NAME.grammar` is a grammar; other files are ignored. Errors: UsageError if the
    directory is unreadable, or has no grammar or more than `MOST`. UsageError also for a file whose
    name is not a valid command name, or that exceeds `LARGEST` bytes. Irregular files and links out
    of the directory are refused too.
    """
    chosen = directory or os.environ.get(VARIABLE)
    if not chosen:
        return None
    place = Path(chosen)
    if place.name == str(chosen) and not place.exists() and (OF_SYSTEMS / place).is_dir():
        place = OF_SYSTEMS / place
    try:
        files = sorted(place.glob("*.grammar")) if place.is_dir() else [*place.iterdir()]
    except OSError as error:
        raise UsageError(
            f"the grammars in {place} cannot be read: {error.strerror}",
            hint="give --grammars a directory with files NAME.grammar",
        ) from None
    if not files:
        raise UsageError(
            f"{place} has no grammars",
            hint=f"draft one: shioenv grammar draft COMMAND > {place}/COMMAND.grammar",
        )
    if len(files) > MOST:
        raise UsageError(f"{place} has {len(files):,} grammars", hint=f"the maximum is {MOST:,}")
    digest = hashlib.sha256()
    for file in files:
        if not _NAME.match(file.stem):
            raise UsageError(
                f"{str(file)!r}: not a valid name of a command",
                hint="use at most 64 letters, digits and _ . + - [",
            )
        content = read_grammar_file(file)
        digest.update(f"{file.stem}\0{len(content)}\0".encode() + content)
    return OwnGrammars(place, tuple(file.stem for file in files), digest.hexdigest())


def grammars_of_system(name: str) -> OwnGrammars | None:
    """Return the shipped grammars of a system's own programs; None if it has no such programs."""
    return own_grammars(OF_SYSTEMS / name) if (OF_SYSTEMS / name).is_dir() else None


def read_grammar_file(file: Path) -> bytes:
    """Return the bytes of a grammar file. Errors: UsageError if it is unreadable or too large.

    A link out of the directory also raises UsageError: messages about faults quote lines of the
    file, so such a link could disclose other files. FileNotFoundError is not caught.
    """
    try:
        content = read_regular(file, LARGEST)
        inside = file.resolve().is_relative_to(file.parent.resolve())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(
            f"the grammar {file} cannot be read: {error.strerror}",
            hint="a grammar must be a regular text file",
        ) from None
    if not inside:
        raise UsageError(
            f"the grammar {file} is a link to a file outside its directory",
            hint="copy the file, or use the directory of its target",
        )
    return content
