"""Table of usage errors: programs' messages for arguments that they reject at once."""

# ruff: noqa: RUF001  # the quotes are those of the messages

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv_model.memory.forms import UNKNOWN, UNKNOWN_LONG, Form
from shioenv_model.rules import refused_values as values
from shioenv_model.rules import refused_words as words
from shioenv_model.rules.refused_values import Refuse, hint, unless

RefuseWords: TypeAlias = Callable[[Form, State], str | None]
"""A function that returns a program's message about all its words; None if it accepts them, or if
unknown."""


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """One row: the arguments that a program rejects, its message, and its exit status."""

    commands: str
    """Command names, separated by spaces."""
    options: str
    """Options whose value is rejected, separated by spaces; "" for a row about all words
    together."""
    program: str
    """The Debian package that contains the commands, and its version."""
    value: Refuse | None = None
    """Returns the message for a value, without the command's name."""
    words: RefuseWords | None = None
    """Returns the message for the words of a command."""
    status: int = 1
    """The exit status."""


COREUTILS, FINDUTILS, GREP, SED = "coreutils 9.1", "findutils 4.9.0", "grep 3.8", "sed 4.9"
GZIP, PROCPS, TAR, UNZIP = "gzip 1.12", "procps 4.0.2", "tar 1.34", "unzip 6.0"
PASSWD, UTIL_LINUX = "passwd 4.13", "util-linux 2.38.1"

_BYTES = values.positions("byte/character positions", "byte/character position")
_FIELDS = values.positions("fields", "field value")
_CONTEXT = unless(r"\d+", "{}: invalid context length argument")
_STYLE = r"[atnp].*"
_PERIOD = r"\d*\.?\d*(?:e-?\d+)?"
_NUMBER, _SIGNED, _NEGATIVE = r"\d+", r"[-+]?\d+", r"-?\d+"


def _style(of: str) -> Refuse:
    return unless(_STYLE, f"invalid {of} numbering style: ‘{{}}’\n{hint('nl')}")


REFUSALS = (
    RefusalRow("cut", "-b -c", COREUTILS, _BYTES),
    RefusalRow("cut", "-d", COREUTILS, values.delimiter),
    RefusalRow("cut", "-f", COREUTILS, _FIELDS),
    RefusalRow("expand unexpand", "-t", COREUTILS, values.tab_stops),
    RefusalRow("fold", "-w", COREUTILS, unless(_NUMBER, "invalid number of columns: ‘{}’")),
    RefusalRow("grep", "-A -B -C", GREP, _CONTEXT, status=2),
    RefusalRow("grep", "-m", GREP, unless(_SIGNED, "invalid max count"), status=2),
    RefusalRow("head tail", "-n", COREUTILS, values.size("lines", signed=True)),
    RefusalRow("head tail", "-c", COREUTILS, values.size("bytes", signed=True)),
    RefusalRow("join", "-1 -2", COREUTILS, unless(_NUMBER, "invalid field number: ‘{}’")),
    RefusalRow("join", "-t", COREUTILS, lambda value: values.tab(value) if value else None),
    RefusalRow("ls", "-w", COREUTILS, unless(_NUMBER, "invalid line width: ‘{}’"), status=2),
    RefusalRow("nice", "-n", COREUTILS, unless(_SIGNED, "invalid adjustment ‘{}’"), status=125),
    RefusalRow("nl", "-b", COREUTILS, _style("body")),
    RefusalRow("nl", "-f", COREUTILS, _style("footer")),
    RefusalRow("nl", "-h", COREUTILS, _style("header")),
    RefusalRow("nl", "-i", COREUTILS, unless(_SIGNED, "invalid line number increment: ‘{}’")),
    RefusalRow(
        "nl", "-l", COREUTILS, unless(_NEGATIVE, "invalid line number of blank lines: ‘{}’")
    ),
    RefusalRow(
        "nl", "-n", COREUTILS,
        unless("ln|rn|rz", f"invalid line numbering format: ‘{{}}’\n{hint('nl')}"),
    ),
    RefusalRow("nl", "-v", COREUTILS, unless(_SIGNED, "invalid starting line number: ‘{}’")),
    RefusalRow("nl", "-w", COREUTILS, unless(_NEGATIVE, "invalid line number field width: ‘{}’")),
    RefusalRow("shuf", "-n", COREUTILS, unless(_NUMBER, "invalid line count: ‘{}’")),
    RefusalRow("sort", "-k", COREUTILS, values.sort_key, status=2),
    RefusalRow("sort", "-t", COREUTILS, values.tab, status=2),
    RefusalRow("split", "-a", COREUTILS, unless(_NUMBER, "invalid suffix length: ‘{}’")),
    RefusalRow("split", "-b", COREUTILS, values.size_of_pieces("bytes")),
    RefusalRow("split", "-l", COREUTILS, values.size_of_pieces("lines")),
    RefusalRow(
        "split", "-n", COREUTILS,
        unless(r"(?:[lr]/)?\d+(?:/\d+)?", "invalid number of chunks: ‘{}’"),
    ),
    RefusalRow("tail", "--pid", COREUTILS, unless(_NUMBER, "invalid PID: ‘{}’")),
    RefusalRow("tail", "-s", COREUTILS, unless(_PERIOD, "invalid number of seconds: ‘{}’")),
    RefusalRow("touch", "-d", COREUTILS, values.date_text),
    RefusalRow("touch", "-t", COREUTILS, values.stamp_error),
    RefusalRow(
        "truncate", "-s", COREUTILS, unless(rf" *[-+<>/%]?{values.SIZE}", "Invalid number: ‘{}’")
    ),
    RefusalRow("uniq", "-f", COREUTILS, unless(_NUMBER, "{}: invalid number of fields to skip")),
    RefusalRow("uniq", "-s", COREUTILS, unless(_NUMBER, "{}: invalid number of bytes to skip")),
    RefusalRow("uniq", "-w", COREUTILS, unless(_NUMBER, "{}: invalid number of bytes to compare")),
    *(
        RefusalRow("xargs", option, FINDUTILS, values.number_of_arguments(option))
        for option in ("-L", "-P", "-n", "-s")
    ),
    RefusalRow("chgrp chown", "", COREUTILS, words=words.owner),
    RefusalRow("chmod", "", COREUTILS, words=words.mode),
    RefusalRow("cp ln mv touch", "", COREUTILS, words=words.absent_directory),
    RefusalRow("cut", "", COREUTILS, words=words.columns_or_absent_file),
    RefusalRow("date", "", COREUTILS, words=words.date),
    RefusalRow("dd", "", COREUTILS, words=words.blocks),
    RefusalRow(
        "expand fold md5sum sha1sum sha256sum", "", COREUTILS, words=words.absent_file
    ),
    RefusalRow("find", "", FINDUTILS, words=words.expression),
    RefusalRow("grep", "", GREP, words=words.file_of_patterns, status=2),
    RefusalRow("gunzip", "", GZIP, words=words.absent_compressed_file),
    RefusalRow("mkdir", "", COREUTILS, words=words.mode_of_new_directory),
    RefusalRow("passwd", "", PASSWD, words=words.user),
    RefusalRow("ps", "", PROCPS, words=words.ps_error),
    RefusalRow("sed", "", SED, words=words.sed_script_error),
    RefusalRow("sed", "", SED, words=words.label, status=4),
    RefusalRow("seq", "", COREUTILS, words=words.numbers),
    RefusalRow("sleep", "", COREUTILS, words=words.seconds),
    RefusalRow("sort", "", COREUTILS, words=words.absent_file_to_sort, status=2),
    RefusalRow("su", "", UTIL_LINUX, words=words.user),
    RefusalRow("tar", "", TAR, words=words.absent_archive, status=2),
    RefusalRow("unzip", "", UNZIP, words=words.absent_zip, status=9),
)  # fmt: skip
"""All rows. Option values are checked before words. The first matching row for words is used."""

_OF_VALUES = {
    (command, option): row
    for row in REFUSALS
    for command in row.commands.split()
    for option in row.options.split()
}
_OF_WORDS = {
    command: [row for row in REFUSALS if row.words and command in row.commands.split()]
    for row in REFUSALS
    if row.words
    for command in row.commands.split()
}


def usage_error(form: Form, state: State) -> Behavior | None:
    """Return the error of a program that rejects its arguments.

    None if the program accepts them, or if no rule applies.
    """
    if form.guessed or any(name in (UNKNOWN, UNKNOWN_LONG) for name, _ in form.options):
        return None
    found = next(chain(_of_values(form), _of_words(form, state)), None)
    if found is None:
        return None
    said = os.fsencode(found[0])
    return Behavior(found[1], said, stdout=b"", stderr=said)


def _of_values(form: Form) -> Iterator[tuple[str, int]]:
    """Yield the message about the first rejected or missing value, with the exit status."""
    for option, value in form.options:
        row = _OF_VALUES.get((form.utility, option))
        if value is None or row is None or row.value is None:
            continue
        value = "" if value == "''" else value
        if not values.is_judged(value, row.value):
            return
        said = row.value(value)
        if said is not None:
            yield f"{form.utility}: {said}\n", row.status
            return
    option, value = form.order[-1] if form.words and form.order else ("", "")
    row = _OF_VALUES.get((form.utility, option))
    if row is not None and value is None and not form.words[-1].startswith("--"):
        usage = "Usage: grep [OPTION]... PATTERNS [FILE]...\n" if form.utility == "grep" else ""
        missing = f"option requires an argument -- '{form.words[-1][-1:]}'"
        yield f"{form.utility}: {missing}\n{usage}{hint(form.utility)}\n", row.status


def _of_words(form: Form, state: State) -> Iterator[tuple[str, int]]:
    """Yield the message about the words together, with the exit status."""
    for row in _OF_WORDS.get(form.utility, ()):
        said = row.words(form, state) if row.words else None
        if said is not None:
            yield said, row.status
            return
