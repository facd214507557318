"""A search through several files and trees, told by what the search of each file prints."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import FileEntry
from shioenv.domain.runner import Answer, State
from shioenv.errors import Abstained
from shioenv_model.composition.call import Call, Options, option_words

SEARCH = "grep"
"""The program that prints lines of files, behind a file's name where there are several files."""

MOST_FILES = 100
"""Most files of one search that are asked about; ours, because each takes some milliseconds."""

Walked: TypeAlias = Callable[[str], Sequence[tuple[str, FileEntry]] | None]

_PLAIN = frozenset(f"-{letter}" for letter in "ivwxEFGPnclLomeasq")
"""Options that mean the same for one file and for several."""
_LITERAL = re.compile(r"[a-zA-Z0-9_ /:;,=<>@#%&~'\"-]+")
_NAMED, _UNNAMED = "-H", "-h"
_TREES = frozenset({"-r", "-R"})
_CHOOSING = {"--include": True, "--exclude": False, "--exclude-dir": False}
_DIRECTORY = "Is a directory"
_LISTING = frozenset({"-l", "-L"})


@dataclass(frozen=True)
class _Search:
    """A search that was taken apart."""

    words: tuple[str, ...]
    """The words before the name of a file."""
    options: Options
    named: bool
    """Lines stand behind their file's name."""

    literals: tuple[bytes, ...] = ()
    """Texts of which a line must hold one to be found; empty where that is not known."""

    def has(self, *names: str) -> bool:
        return any(name in names for name, _ in self.options)

    def says_nothing_of(self, content: bytes | None) -> bool:
        """Whether it is known that nothing is printed of a content, because nothing is in it."""
        if content is None or not self.literals or self.has("-v", "-c", "-L"):
            return False
        folded = content.lower()
        return not any(each in folded for each in self.literals)


def searched(
    name: str,
    options: Options,
    operands: tuple[str, ...],
    state: State,
    walked: Walked,
    ask: Callable[[Call, State], Answer],
) -> Answer | None:
    """What `grep` prints of several files, and of trees with `-r`: what it prints of each file.

    `walked` gives the paths below a directory with their entries, in the order of a walk. `ask`
    says what the command prints of one file. None for other commands, and for options that mean
    something else for several files.
    """
    known = {*_PLAIN, *_TREES, *_CHOOSING, _NAMED, _UNNAMED}
    names = [option for option, _ in options]
    if name != SEARCH or not known.issuperset(names) or {*names} >= _LISTING:
        return None
    apart = 0 if "-e" in names else 1
    pattern, files = operands[:apart], operands[apart:]
    deep = bool(_TREES & {*names})
    if len(pattern) < apart or "-" in files or not (files or deep):
        return None
    if not deep and len(files) < 2 and _NAMED not in names:
        return None
    naming = [each for each in names if each in (_NAMED, _UNNAMED)]
    several = len(files) != 1 or (deep and _is_directory(files[0], state))
    named = naming[-1] == _NAMED if naming else several
    kept = [
        word for each in options if each[0] in _PLAIN - {"-s", "-q"} for word in option_words(each)
    ]
    words = (SEARCH, *kept, "--", *pattern)
    patterns = [*pattern, *(value or "" for option, value in options if option == "-e")]
    search = _Search(tuple(words), options, named, tuple(_literals(patterns)))
    try:
        return _together(search, files, state, walked, ask)
    except Abstained:
        return None


def _literals(patterns: Sequence[str]) -> list[bytes]:
    """Texts of small letters one of which is in each line that a pattern matches, if any is known.

    Only letters of ASCII have small letters of one length.
    """
    found = [each for pattern in patterns for each in re.split(r"\\?\||\n", pattern)]
    if not all(_LITERAL.fullmatch(each) for each in found):
        return []
    return [each.lower().encode() for each in found]


def _is_directory(path: str, state: State) -> bool:
    entry = _followed(path, state)
    return entry is not None and entry.perms.startswith("d")


def _followed(path: str, state: State) -> FileEntry | None:
    return state.entry(state.resolve(path))


def _together(
    search: _Search,
    files: Sequence[str],
    state: State,
    walked: Walked,
    ask: Callable[[Call, State], Answer],
) -> Answer:
    """The search of all files, one after the other. Errors: Abstained."""
    printed: list[bytes] = []
    outputs: list[bytes] = []
    errors: list[bytes] = []
    sure, found, asked = 1.0, False, 0
    for path, wrong in _files(search, files, state, walked):
        if wrong:
            said = os.fsencode(f"grep: {path}: {wrong}\n")
            errors.append(said)
            if not search.has("-s"):
                outputs.append(said)
            if wrong == _DIRECTORY and not search.has("-q"):  # is read as if it were empty
                empty = os.fsencode(f"{path}\n") if search.has("-L") else b"0\n"
                shown = search.has("-L") or (search.has("-c") and not search.has("-l"))
                lines = b"".join(_behind(search, path, empty if shown else b""))
                printed.append(lines)
                outputs.append(lines)
            continue
        if search.says_nothing_of(state.read(path)):
            continue
        asked += 1
        if asked > MOST_FILES:
            raise Abstained("too many files")
        answer = ask(Call.of([*search.words, path]), state)
        one = answer.behavior
        if one.patch or one.stderr or one.stdout is None or one.exit_code > 1 or one.volatile:
            raise Abstained("a search that does more than print")
        sure = min(sure, answer.confidence)
        found = found or one.exit_code == 0
        if search.has("-q"):
            if found:
                break
            continue
        lines = b"".join(_behind(search, path, one.stdout))
        printed.append(lines)
        outputs.append(lines)
    quiet = search.has("-q") and found
    code = 2 if errors and not quiet else 0 if found else 1
    stderr = b"" if search.has("-s") else b"".join(errors)
    behavior = Behavior(code, b"".join(outputs), stdout=b"".join(printed), stderr=stderr)
    return Answer(behavior, sure, "a search of several files, by rule")


def _behind(search: _Search, path: str, printed: bytes) -> Iterator[bytes]:
    """The lines that were printed of a file, each behind its name where that is shown."""
    name = os.fsencode(path)
    whole = search.has(*_LISTING) or not search.named
    for line in printed.splitlines(keepends=True) if not whole else [printed]:
        told = line == b"grep: %s: binary file matches\n" % name
        yield line if whole or told else b"%s:%s" % (name, line)


def _files(
    search: _Search, files: Sequence[str], state: State, walked: Walked
) -> Iterator[tuple[str, str]]:
    """The files that are searched by their names, each with what is wrong with it, if anything.

    Errors: Abstained where a file may be followed, waited for or not be listed.
    """
    for path in files or ("",):
        entry = _followed(path or ".", state)
        if entry is None:
            yield path, "No such file or directory"
        elif entry.perms.startswith("d"):
            if not search.has(*_TREES):
                yield path, _DIRECTORY
                continue
            below = walked(path or ".")
            if below is None:
                raise Abstained("a tree that is not known")
            above = path and path.rstrip("/") + "/"
            for inner, each in below:
                if each.perms.startswith("l") and search.has("-R"):
                    raise Abstained("a link that is followed")
                if each.perms.startswith("-") and _is_chosen(search, inner):
                    yield f"{above}{inner}", ""
        elif not entry.perms.startswith("-"):
            raise Abstained("a file that may be waited for")
        elif _is_chosen(search, path):
            yield path, ""


def _is_chosen(search: _Search, path: str) -> bool:
    """Whether `--include`, `--exclude` and `--exclude-dir` leave a file in: the last one counts."""
    *above, name = path.split("/")
    chosen = [each for each in search.options if each[0] in ("--include", "--exclude")]
    left_in = not chosen or not _CHOOSING[chosen[0][0]]
    for option, pattern in chosen:
        if fnmatchcase(name, pattern or ""):
            left_in = _CHOOSING[option]
    left_out = [pattern or "" for option, pattern in search.options if option == "--exclude-dir"]
    return left_in and not any(
        fnmatchcase(part, posixpath.normpath(one)) for one in left_out for part in above
    )
