"""Commands on several files: their behavior, derived from that on each file."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import OF_DATE, FileEntry
from shioenv.domain.runner import Answer, State
from shioenv.errors import Abstained
from shioenv.grammar.traits import PATHS
from shioenv_model.composition.call import Call, Options, option_words
from shioenv_model.composition.changes import composed
from shioenv_model.memory.facts import Operand
from shioenv_model.memory.forms import ASSIGNMENT, Form
from shioenv_model.rules.tree_changes import Effects

SEARCH = "grep"
"""The search program; it prefixes lines with the file name when given several files."""

MOST_FILES = 100
"""Maximum number of files per search (our choice, because each file takes some milliseconds)."""

Walked: TypeAlias = Callable[[str], Sequence[tuple[str, FileEntry]] | None]

_PLAIN = frozenset(f"-{letter}" for letter in "ivwxEFGPnclLomeasq")
"""Options that mean the same for one file and for several."""
_LITERAL = re.compile(r"[a-zA-Z0-9_ /:;,=<>@#%&~'\"-]+")
_NAMED, _UNNAMED = "-H", "-h"
_TREES = frozenset({"-r", "-R"})
_CHOOSING = {"--include": True, "--exclude": False, "--exclude-dir": False}
_DIRECTORY = "Is a directory"
_LISTING = frozenset({"-l", "-L"})


EACH = frozenset(
    {
        "cat", "chgrp", "chmod", "chown", "cksum", "cut", "md5sum", "mkdir", "rm", "rmdir",
        "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "stat", "tac", "touch",
    }
)  # fmt: skip
"""Commands that treat each operand independently of the others."""

ALONG = frozenset({"nl", "sed"})
"""Commands that concatenate their operands; treated like `EACH` if only one operand exists."""

_OF_ALL = frozenset({ASSIGNMENT, "--reference", "-I", "--interactive"})
"""Options that depend on all operands together, or on missing files."""

EDITORS = frozenset({"sed", "perl"})
"""Programs that edit files in place with `-i`: their output replaces the file."""

_IN_PLACE = frozenset({"-i", "--in-place"})
_SCRIPTS = frozenset({"-e", "-E", "--expression", "-f", "--file"})
"""Options whose values are scripts. (The `-E` of sed has no value, so it is ignored.)"""


@dataclass(frozen=True)
class _Search:
    """A parsed search."""

    words: tuple[str, ...]
    """The words before the file names."""
    options: Options
    named: bool
    """Whether lines are prefixed with the file name."""

    literals: tuple[bytes, ...] = ()
    """Literals of which a matching line contains at least one; empty if unknown."""

    def has(self, *names: str) -> bool:
        return any(name in names for name, _ in self.options)

    def prints_nothing_for(self, content: bytes | None) -> bool:
        """Whether the search certainly prints nothing for this content."""
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
    """Return the output of `grep` on several files or, with `-r`, on trees, file by file.

    `walked` returns the paths below a directory with their entries, in walk order. `ask` returns
    the output for one file. None for other commands, and for options that mean something else with
    several files.
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
    """Return lowercase literals: every matching line contains at least one. Empty if unknown.

    Patterns with non-ASCII letters have none, because lowercase forms may differ in length.
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
    """Search all files, one after the other. Errors: Abstained."""
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
            if wrong == _DIRECTORY and not search.has("-q"):  # grep treats a directory as empty
                empty = os.fsencode(f"{path}\n") if search.has("-L") else b"0\n"
                shown = search.has("-L") or (search.has("-c") and not search.has("-l"))
                lines = b"".join(_behind(search, path, empty if shown else b""))
                printed.append(lines)
                outputs.append(lines)
            continue
        if search.prints_nothing_for(state.read(path)):
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
    """Yield the printed lines of a file, prefixed with its name if names are shown."""
    name = os.fsencode(path)
    whole = search.has(*_LISTING) or not search.named
    for line in printed.splitlines(keepends=True) if not whole else [printed]:
        told = line == b"grep: %s: binary file matches\n" % name
        yield line if whole or told else b"%s:%s" % (name, line)


def _files(
    search: _Search, files: Sequence[str], state: State, walked: Walked
) -> Iterator[tuple[str, str]]:
    """Yield the searched files by name, each with its error message, if any.

    Errors: Abstained for links that may be followed, files that may block, and unknown directories.
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
                raise Abstained("an unknown tree")
            above = path and path.rstrip("/") + "/"
            for inner, each in below:
                if each.perms.startswith("l") and search.has("-R"):
                    raise Abstained("a link that is followed")
                if each.perms.startswith("-") and _is_chosen(search, inner):
                    yield f"{above}{inner}", ""
        elif not entry.perms.startswith("-"):
            raise Abstained("reading a special file may block")
        elif _is_chosen(search, path):
            yield path, ""


def _is_chosen(search: _Search, path: str) -> bool:
    """Whether `--include`, `--exclude` and `--exclude-dir` select a file; the last match wins."""
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


def edited_in_place(
    name: str,
    options: Options,
    operands: tuple[str, ...],
    state: State,
    fresh: Mapping[str, Any],
    ask: Callable[[Call, State], Answer],
) -> Answer | None:
    """Return the effect of `sed -i` or `perl -i`. `ask` returns the output for one file.

    `fresh` is the entry of an empty file created now. None for other commands, for unknown
    contents, and if the command would print an error.
    """
    if name not in EDITORS or not any(option in _IN_PLACE for option, _ in options):
        return None
    suffix = "".join(value or "" for option, value in options if option in _IN_PLACE)
    others = [pair for pair in options if pair[0] not in _IN_PLACE]
    apart = 0 if any(option in _SCRIPTS and value is not None for option, value in others) else 1
    script, files = operands[:apart], operands[apart:]
    if not files or "/" in suffix or "*" in suffix:
        return None
    before = [name, *(word for option in others for word in option_words(option)), *script]
    made, sure = Effects(state, fresh), 1.0
    try:
        for path in files:
            answer = ask(Call.of([*before, path]), state)
            sure = min(sure, answer.confidence)
            _replace(made, path, suffix, answer.behavior)
    except Abstained:
        return None
    return Answer(made.behavior(), sure, "a file edited in place, by rule", made.contents)


def _replace(made: Effects, path: str, suffix: str, said: Behavior) -> None:
    """Replace a file by the output `said`. Errors: Abstained.

    The new file has the owner and permissions of the old one, without special bits. A link becomes
    a regular file. With a suffix, the old file is kept under another name.
    """
    entry, content = made.state.entry(path), made.state.read(path)
    if entry is None or content is None or entry.links > 1:
        raise Abstained("a file with too little known content")
    if said.exit_code or said.patch or said.stderr or said.stdout is None:
        raise Abstained("an editor that does more than print")
    whole, now = made.place(path), {each: made.fresh[each] for each in OF_DATE}
    if suffix:
        kept = made.place(f"{path}{suffix}")
        if made.entry(kept) is not None:
            raise Abstained("an existing file at the target")
        made.put(kept, entry.to_json())
        made.contents[made.key(kept)] = content
    else:
        above = posixpath.dirname(whole)
        made.put(above, {**(made.entry(above) or {}), **now})
    perms = entry.perms.translate(str.maketrans("sStT", "x-x-"))
    made.put(whole, {**entry.to_json(), **now, "perms": perms, "size": len(said.stdout)})
    if said.stdout != content:
        made.contents[made.key(whole)] = said.stdout


def one_by_one(
    form: Form, operands: Sequence[Operand], state: State, ask: Callable[[Call], Answer]
) -> Answer | None:
    """Answer a command that reports an error for some of its operands.

    These are missing files, or for `mkdir` and `rmdir` existing ones. `ask` answers for the command
    with one operand. None for any other command.
    """
    if form.utility not in EACH | ALONG or len(form.roles) != len(operands):
        return None
    paths = [one for one, role in zip(operands, form.roles, strict=True) if role in PATHS]
    before = [one for one, role in zip(operands, form.roles, strict=True) if role not in PATHS]
    if (
        len(paths) < 2
        or len({each.word for each in paths}) < len(paths)
        or any(each.kind == "x" for each in paths)
    ):
        return None
    missing = [each for each in paths if each.kind in "mM"]
    there = len(paths) - len(missing)
    if form.utility in ALONG and there > 1:
        return None
    if form.utility == "cat" and there > 1 and form.options:
        return None  # line numbers continue from one file to the next
    wrong = there if form.utility in ("mkdir", "rmdir") else len(missing)
    names = {name for name, _ in form.options}
    if not wrong or names & _OF_ALL or (form.utility == "touch" and names & {"-r", "-h"}):
        return None
    if any(each.word.startswith("-") for each in operands):
        return None
    words = [form.command, *(word for each in form.options for word in option_words(each))]
    words += [each.word for each in before]
    answers = [ask(Call.of([*words, each.word])) for each in paths]
    behaviors = [each.behavior for each in answers]
    if any(each.stdout is None or each.output_truncated for each in behaviors):
        return None
    document = state.before.document
    return Answer(
        Behavior(
            max(each.exit_code for each in behaviors),
            b"".join(each.output for each in behaviors),
            composed(document, [each.patch for each in behaviors], state.cwd),
            stdout=b"".join(each.stdout or b"" for each in behaviors),
            stderr=b"".join(each.stderr or b"" for each in behaviors),
            volatile=any(each.volatile for each in behaviors),
            content_digests={k: v for each in behaviors for k, v in each.content_digests.items()},
        ),
        min(each.confidence for each in answers),
        "operands one by one, by rule",
        {k: v for each in answers for k, v in each.written.items()},
    )
