"""Arguments rejected as a whole: scripts, expressions, modes, missing users and files.

Each function returns the program's message. It returns None if the program accepts the words, or if
no rule applies. `rules.usage_errors` lists the functions.
"""

# ruff: noqa: RUF001, SIM905  # the quotes are those of the messages

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from shioenv.domain.runner import State
from shioenv_model.bash.work import uncounted
from shioenv_model.memory.forms import Form
from shioenv_model.memory.functions.script import RefusedScriptError, read_script
from shioenv_model.rules.accounts import GROUP, PASSWD, parse_accounts
from shioenv_model.rules.refused_values import hint, is_mode, may_be_a_date

_SHOWN = re.compile(r"[ -\[\]-~]+")
"""Words that messages show unchanged: ASCII without a backslash."""

_OF_THE_KERNEL = ("/dev/", "/proc/", "/sys/")
"""Directories whose files a state does not describe."""

_PLAIN = frozenset({"-E", "-i", "-n", "-s", "-u", "-z"})
"""Options of `sed` that do not change the meaning of a script."""


def sed_script_error(form: Form, state: State) -> str | None:
    """`sed`'s error for a script that it cannot parse."""
    return _script(form, 1)


def label(form: Form, state: State) -> str | None:
    """`sed`'s error for a jump to a missing label."""
    with uncounted():  # `sed_script_error` counted the same steps
        return _script(form, 4)


def _script(form: Form, status: int) -> str | None:
    """`sed`'s error for a script that it rejects with this exit status."""
    scripts = [value for name, value in form.options if name == "-e"]
    if any(name not in _PLAIN and name != "-e" for name, _ in form.options) or len(scripts) > 1:
        return None
    script = (scripts or [*form.operands, None])[0]
    if script is None or "\n" in script:
        return None
    extended = any(name == "-E" for name, _ in form.options)
    try:
        read_script(script, "extended" if extended else "basic")
    except RefusedScriptError as refused:
        place = "-e expression #1, " if f"{refused}".startswith("char ") else ""
        return f"sed: {place}{refused}\n" if refused.code == status else None
    except (ValueError, OverflowError, re.error):
        pass
    return None


def mode(form: Form, state: State) -> str | None:
    """`chmod`'s error for an invalid mode."""
    if len(form.operands) < 2 or any(name == "--reference" for name, _ in form.options):
        return None
    mode = form.operands[0]
    if not _SHOWN.fullmatch(mode) or is_mode(mode):
        return None
    if any(re.fullmatch("-[rwxXstugo0-7,=+-]+", word) for word in form.words):
        return None  # a mode that begins with a dash
    return f"chmod: invalid mode: ‘{mode}’\n{hint('chmod')}\n"


def mode_of_new_directory(form: Form, state: State) -> str | None:
    """`mkdir -m`'s error for an invalid mode."""
    mode = dict(form.options).get("-m")
    if not mode or not form.operands or not _SHOWN.fullmatch(mode) or is_mode(mode):
        return None
    return f"mkdir: invalid mode ‘{mode}’\n"


def owner(form: Form, state: State) -> str | None:
    """`chown`'s and `chgrp`'s errors for an unknown owner or group."""
    options = dict(form.options)
    if len(form.operands) < 2 or "--reference" in options:
        return None
    users, groups = parse_accounts(state, PASSWD), parse_accounts(state, GROUP)
    alone = form.utility == "chgrp"
    for spec in (options.get("--from"), form.operands[0]):
        if spec is None or not _SHOWN.fullmatch(spec) or not users:
            continue
        owner, colon, group = ("", ":", spec) if alone else spec.partition(":")
        if owner and owner not in users and not owner.lstrip("+").isdecimal():
            what = "spec" if colon and not group else "user"
        elif group and group not in groups and not group.lstrip("+").isdecimal():
            what = "group"
        else:
            continue
        if "." in owner and not colon and not set(owner.split(".")).isdisjoint({*users, ""}):
            return None  # an owner and a group separated by a dot
        return f"{form.utility}: invalid {what}: ‘{spec}’\n"
    return None


def user(form: Form, state: State) -> str | None:
    """`passwd`'s and `su`'s errors for an unknown user."""
    users = parse_accounts(state, PASSWD)
    who = [word for word in form.words if word not in ("-", "-l", "--login")][:1]
    if not users or not who or who[0] in users or not _NAME.fullmatch(who[0]) or who[0][0] == "-":
        return None
    if form.utility == "passwd":
        return f"passwd: user '{who[0]}' does not exist\n"
    return (
        f"su: user {who[0]} does not exist or the user entry does not contain all the required "
        "fields\n"
    )


def seconds(form: Form, state: State) -> str | None:
    """`sleep`'s error for invalid time intervals."""
    wrong = [
        word for word in form.operands
        if not re.fullmatch(r"(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?[smhd]?|inf(?:inity)?", word)
    ]  # fmt: skip
    if not wrong or not all(map(_SHOWN.fullmatch, wrong)):
        return None
    if any(re.match(r"[-+ ]|0x|nan", word, re.I) for word in wrong):
        return None
    said = "".join(f"sleep: invalid time interval ‘{word}’\n" for word in wrong)
    return f"{said}{hint('sleep')}\n"


def date(form: Form, state: State) -> str | None:
    """`date`'s errors for a second operand, and for an invalid date."""
    operands, options = form.operands, dict(form.options)
    if len(operands) > 1 and _SHOWN.fullmatch(operands[1]):
        return f"date: extra operand ‘{operands[1]}’\n{hint('date')}\n"
    texts = [value for name, value in form.options if name in ("-d", "-s") and value]
    texts = texts or ([] if options else [*operands])
    if not texts or texts[0].startswith("+") or not _SHOWN.fullmatch(texts[0]):
        return None
    if may_be_a_date(texts[0]) or (options and operands and not operands[0].startswith("+")):
        return None
    return f"date: invalid date ‘{texts[0]}’\n"


def numbers(form: Form, state: State) -> str | None:
    """`seq`'s errors for a fourth number, and for a step of 0."""
    if len(form.operands) > 3 and _SHOWN.fullmatch(form.operands[3]):
        return f"seq: extra operand ‘{form.operands[3]}’\n{hint('seq')}\n"
    if len(form.operands) == 3 and re.fullmatch("0+", form.operands[1]):
        return f"seq: invalid Zero increment value: ‘{form.operands[1]}’\n{hint('seq')}\n"
    return None


def _columns(form: Form, state: State) -> str | None:
    """`cut`'s errors for a missing list, for several lists, and for options that need fields."""
    given = [name for name, _ in form.options]
    lists = [name for name in given if name in ("-b", "-c", "-f")]
    delimiter = os.fsencode(dict(form.options).get("-d") or "")
    if "--help" in given or "--version" in given or len(delimiter) > 1:
        return None
    if len(lists) > 1:
        said = "only one list may be specified"
    elif not lists:
        said = "you must specify a list of bytes, characters, or fields"
    elif lists != ["-f"] and "-d" in given:
        said = "an input delimiter may be specified only when operating on fields"
    else:
        return None
    return f"cut: {said}\n{hint('cut')}\n"


def blocks(form: Form, state: State) -> str | None:
    """`dd`'s errors for an invalid number, and for a missing input file."""
    given = {}
    for word in form.words:
        key, sign, value = word.partition("=")
        if not sign or key not in _OF_BLOCKS or not _NAME.fullmatch(value) or key in given:
            return None
        numeric = key not in ("if", "of", "conv", "status")
        if numeric and not re.fullmatch(r"\d[\dxA-Za-z]*", value):
            return f"dd: invalid number: ‘{value}’\n"
        given[key] = value
    source = given.get("if")
    if source is None or state.entry(source) is not None or source.startswith(_OF_THE_KERNEL):
        return None
    return f"dd: failed to open '{source}': No such file or directory\n"


_OF_BLOCKS = frozenset(
    {"bs", "cbs", "conv", "count", "ibs", "if", "obs", "of", "seek", "skip", "status"}
)


def absent_file(form: Form, state: State) -> str | None:
    """A program's error if its only input file is missing."""
    path = "".join(form.operands)
    if len(form.operands) != 1 or not _names_a_file(path) or state.entry(path) is not None:
        return None
    if any(name in ("--help", "--version", "-i", "--files0-from") for name, _ in form.options):
        return None
    return f"{form.utility}: {path}: No such file or directory\n"


def columns_or_absent_file(form: Form, state: State) -> str | None:
    """`cut`'s error for its list, else if its only file is missing."""
    return _columns(form, state) or absent_file(form, state)


def absent_file_to_sort(form: Form, state: State) -> str | None:
    """`sort`'s error for the first missing file."""
    if any(name not in _OF_ORDER for name, _ in form.options):
        return None
    for path in form.operands:
        if path != "-" and state.entry(path) is None:
            shown = _NAME.fullmatch(path) and not path.startswith((*_OF_THE_KERNEL, "+"))
            return f"sort: cannot read: {path}: No such file or directory\n" if shown else None
    return None


_OF_ORDER = frozenset(
    {"-b", "-d", "-f", "-g", "-h", "-i", "-k", "-M", "-n", "-r", "-s", "-t", "-u", "-V"}
)


def file_of_patterns(form: Form, state: State) -> str | None:
    """`grep`'s error for a file of patterns that is missing or a directory."""
    path = next((value for name, value in form.options if name == "-f"), None)
    if path is None or not _names_a_file(path):
        return None
    entry = state.entry(path)
    if entry is None:
        return f"grep: {path}: No such file or directory\n"
    return f"grep: {path}: Is a directory\n" if entry.perms.startswith("d") else None


def absent_compressed_file(form: Form, state: State) -> str | None:
    """`gunzip`'s error if its only file is missing."""
    path = "".join(form.operands)
    if len(form.operands) != 1 or not _NAME.fullmatch(path) or form.options:
        return None
    if path.rpartition("/")[2].rpartition(".")[1] or state.entry(path) or state.entry(f"{path}.gz"):
        return None
    return f"gzip: {path}.gz: No such file or directory\n"


def ps_error(form: Form, state: State) -> str | None:
    """`ps`'s errors for unknown users and malformed PID lists."""
    users = parse_accounts(state, PASSWD)
    for name, value in form.options:
        if not value or not _NAME.fullmatch(value):
            continue
        if name in ("-u", "-U", "--user", "--User", "U") and users:
            unknown = [each for each in value.split(",") if each not in users]
            if unknown and not any(each[:1].isdigit() or not each for each in unknown):
                return f"error: user name does not exist\n{_OF_PROCESSES}"
        if name in ("-p", "--pid", "-q") and re.fullmatch("[a-zA-Z_]+", value):
            return f"error: process ID list syntax error\n{_OF_PROCESSES}"
    return None


_OF_PROCESSES = """
Usage:
 ps [options]

 Try 'ps --help <simple|list|output|threads|misc|all>'
  or 'ps --help <s|l|o|t|m|a>'
 for additional help text.

For more details see ps(1).
"""


def absent_directory(form: Form, state: State) -> str | None:
    """The error for a file to be created in a missing directory."""
    operands = form.operands
    several = {"cp": 2, "mv": 2, "ln": 2}.get(form.utility, 1)
    if len(operands) != several or set(form.options) - _OF_PLACES:
        return None
    place = operands[-1]
    above = place.rstrip("/").rpartition("/")[0]
    if not above or state.entry(above) is not None or not _NAME.fullmatch(place):
        return None
    if form.utility != "touch":
        source = state.entry(operands[0])
        symbolic = any(name == "-s" for name, _ in form.options)
        if not _NAME.fullmatch(operands[0]) or (source is None and not symbolic):
            return None
        if form.utility != "mv" and source and not source.perms.startswith("-") and not symbolic:
            return None
    missing = "No such file or directory\n"
    match form.utility:
        case "touch" if not any(name == "-c" for name, _ in form.options):
            return f"touch: cannot touch '{place}': {missing}"
        case "cp" if not place.endswith("/"):
            return f"cp: cannot create regular file '{place}': {missing}"
        case "mv":
            return f"mv: cannot move '{operands[0]}' to '{place}': {missing}"
        case "ln" if any(name == "-s" for name, _ in form.options):
            return f"ln: failed to create symbolic link '{place}': {missing}"
        case "ln":
            return f"ln: failed to create hard link '{place}' => '{operands[0]}': {missing}"
    return None


_NAME = re.compile(r"[\w.,/@%+=-]+", re.ASCII)


def _names_a_file(path: str) -> bool:
    """Whether a word names a file: not standard input, no special spelling, not the kernel's."""
    return bool(_NAME.fullmatch(path)) and path != "-" and not path.startswith(_OF_THE_KERNEL)


_OF_PLACES = frozenset((name, None) for name in ("-R", "-a", "-f", "-p", "-r", "-s", "-n"))
"""Options that do not change the message."""


def absent_archive(form: Form, state: State) -> str | None:
    """`tar`'s error for a missing archive to read."""
    options = dict(form.options)
    path = options.get("-f")
    if path is None or not _names_a_file(path) or not options.keys() & {"-x", "-t"}:
        return None
    if state.entry(path) is not None or "-C" in options:
        return None
    ends = "Error is not recoverable: exiting now\n"
    opened = f"{path}: Cannot open: No such file or directory\n"
    if options.keys() & {"-z", "-j", "-J"}:
        first = f"tar (child): {opened}tar (child): {ends}"
        return f"{first}tar: Child returned status 2\ntar: {ends}"
    return f"tar: {opened}tar: {ends}"


def absent_zip(form: Form, state: State) -> str | None:
    """`unzip`'s error for a missing archive."""
    path = "".join(form.operands[:1])
    found = any(state.entry(path + end) for end in ("", ".zip", ".ZIP"))
    if not path or found or not _NAME.fullmatch(path) or {n for n, _ in form.options} - {"-o"}:
        return None
    return f"unzip:  cannot find or open {path}, {path}.zip or {path}.ZIP.\n"


def expression(form: Form, state: State) -> str | None:
    """`find`'s error for the first invalid word of an expression (find(1))."""
    words = list(form.words)
    while words and (not words[0].startswith(("-", "(", ")", "!")) or words[0] == "--"):
        words.pop(0)
    users, groups = parse_accounts(state, PASSWD), parse_accounts(state, GROUP)
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if word in _ALONE:
            continue
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            ends = [
                i
                for i, each in enumerate(words[place:])
                if each == ";" or (each == "+" and words[place + i - 1] == "{}")
            ]
            if not ends or not ends[0]:
                return f"find: missing argument to `{word}'\n"
            place += ends[0] + 1
            continue
        if not word.startswith("-") and _SHOWN.fullmatch(word):
            return f"find: paths must precede expression: `{word}'\n"
        if word not in _VALUED:
            return None
        if place == len(words):
            return f"find: missing argument to `{word}'\n"
        value = words[place]
        place += 1
        if not _SHOWN.fullmatch(value):
            return None
        said = _refused_test(word, value)
        if word == "-user" and users and value not in users and not value.isdecimal():
            said = f"‘{value}’ is not the name of a known user"
        if word == "-group" and groups and value not in groups and not value.isdecimal():
            said = f"‘{value}’ is not the name of an existing group"
        if said is not None:
            return f"find: {said}\n"
    said = _refused_expression(words)
    return None if said is None else f"find: {said}\n"


def _refused_expression(words: Sequence[str]) -> str | None:
    """The error for misplaced operators in an otherwise valid expression."""
    if not words:
        return None
    if words[0] in ("-o", "-or", "-a", "-and"):
        used = f"you have used a binary operator '{words[0]}' with nothing before it"
        return f"invalid expression; {used}."
    if words[-1] in ("-o", "-or", "-a", "-and", "!", "-not"):
        return f"expected an expression after '{words[-1]}'"
    if words.count(")") == 1 and "(" not in words:
        return "you have too many ')'"
    return None


def _refused_test(word: str, value: str) -> str | None:
    if word in _NUMBERS:
        taken = re.fullmatch(r"[-+]?\d+(?:\.\d*)?", value)
        return None if taken else f"invalid argument `{value}' to `{word}'"
    if word in ("-maxdepth", "-mindepth"):
        said = f"Expected a positive decimal integer argument to {word}, but got ‘{value}’"
        return None if value.isdecimal() else said
    if word == "-type":
        for number, letter in enumerate(value.split(",")):
            if letter[:1] not in tuple("bcdpflsD") or not letter:
                return f"Unknown argument to -type: {letter[:1]}" if letter else None
            if len(letter) > 1 and not number:
                return "Must separate multiple arguments to -type using: ','"
    if word == "-size" and re.fullmatch(r"[-+]?\d*[^\dcwbkMG]", value):
        return f"invalid -size type `{value[-1]}'"
    if word == "-perm":
        mode = value.lstrip("-/")
        return None if not mode or is_mode(mode) else f"invalid mode ‘{value}’"
    return None


_ALONE = frozenset(
    "-a -and -o -or , ! -not ( ) -print -print0 -ls -delete -prune -quit -empty -true -false -depth"
    " -d -xdev -mount -follow -readable -writable -executable -nouser -nogroup -daystart"
    " -noleaf -ignore_readdir_race -noignore_readdir_race -warn -nowarn".split()
)
_NUMBERS = frozenset("-mtime -atime -ctime -mmin -amin -cmin -links -inum -uid -gid -used".split())
_VALUED = _NUMBERS | frozenset(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -lname -ilname -type -xtype"
    " -size -perm -user -group -maxdepth -mindepth -newer -anewer -cnewer -samefile -printf"
    " -fprint -fprint0 -fls -fstype -context".split()
)
