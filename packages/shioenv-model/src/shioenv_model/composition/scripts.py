"""Commands that run a shell script: `bash FILE`, `sh -c TEXT`, `. FILE`, `./FILE`."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shioenv.bash.builtins import BUILTINS
from shioenv.domain.context import FileEntry
from shioenv.domain.patch import ContextPatch, diff_documents
from shioenv.errors import Abstained
from shioenv_model.composition.conditions import Test, is_root
from shioenv_model.composition.environment import Environment
from shioenv_model.composition.frames import Stdin
from shioenv_model.composition.ruled import SET_LETTERS, SET_NAMES

SHELLS = frozenset({"bash", "sh", "dash"})
"""Shells that run a script."""

READING = frozenset({".", "source"})
"""Builtins that run a script in the current shell."""

DEEPEST = 8
"""Maximum nesting depth of scripts (our choice)."""

_SHEBANG = re.compile(r"#! *(\S+)(?:[ \t]+(.*?))?[ \t]*(?:\n|$)")
_BASHISM = re.compile(
    r"\[\[|\(\(|<<<|<\(|>\(|&>|\|&|\bfunction\s|==|\w+\+?=\(|\$\{\w+(?:/|:[^-=+?]|\^|,)|\$'"
    r"|\$\{!|\{\w*(?:,|\.\.)|\b(?:source|let|declare|typeset|select|pushd|popd|mapfile|shopt)\b"
    r"|echo +-[eE]|\$\{?(?:RANDOM|SECONDS|BASH)|\bread\b.* -[^rp ]|\\\\$",
)
"""Syntax that dash parses differently from Bash, or not at all."""


@dataclass(frozen=True, slots=True)
class Script:
    """A shell script, and how it is run."""

    text: str
    name: str
    """`$0`."""
    file: str
    """The file, as named in the shell's messages."""
    arguments: tuple[str, ...] = ()
    is_dash: bool = False
    options: frozenset[str] = frozenset()
    """Enabled options of `set -o`."""
    shopts: Mapping[str, bool] = field(default_factory=dict)
    """Options of `shopt` that are set or unset."""
    reads_itself: bool = False
    """Whether the program comes from standard input."""
    is_argument: bool = False
    """Whether the program is the argument of `-c`."""


@dataclass(frozen=True, slots=True)
class NotRun:
    """The error message and exit status of a shell that cannot run a file."""

    said: str
    status: int


def script_of(here: Environment, words: Sequence[str], stdin: Stdin) -> Script | NotRun | None:
    """Parse a command that runs a script in a child shell; None for any other command.

    Errors: Abstained for unsupported options.
    """
    name = words[0]
    if name in SHELLS or name in {f"/bin/{each}" for each in SHELLS}:
        return _called(here, words, stdin)
    if "/" in name:
        return _file(here, words)
    return None


def _called(here: Environment, words: Sequence[str], stdin: Stdin) -> Script | NotRun | None:
    shell, *rest = words
    name = posixpath.basename(shell)
    letters, on, shopts = "", set[str](), dict[str, bool]()
    while rest and re.match("[-+].|-$", rest[0]):
        word = rest.pop(0)
        if word in {"-", "--"}:
            break
        if word in {"--norc", "--noprofile"}:
            continue
        if word in {"--rcfile", "--init-file"} and rest:  # only interactive shells read that file
            rest.pop(0)
            continue
        if not re.fullmatch("-[ceus]+" if name != "bash" else "[-+][abcefhkmsuxBCEHOPTo]+", word):
            return None
        for letter in word[1:]:
            value = (rest.pop(0) if rest else "") if letter in "oO" else ""
            option = value if letter == "o" else SET_LETTERS.get(letter, "")
            if letter == "O" and value in here.state.before.document["shell_options"]:
                shopts[value] = word[0] == "-"
            elif letter in "cs":
                letters += letter
            elif option not in SET_NAMES:
                return None
            elif word[0] == "-":
                on.add(option)
            else:
                on.discard(option)
    if name == "bash" and here.state.before.document["env"].get("BASH_ENV"):
        return None
    options = frozenset(on)
    dash = name != "bash"
    if "c" in letters:
        if not rest:
            return None if dash else NotRun(f"{shell}: -c: option requires an argument", 2)
        text, *rest = rest
        zero, *arguments = rest or [shell]
        return Script(
            text, zero, zero, tuple(arguments), dash, options, is_argument=True, shopts=shopts
        )
    if not rest or "s" in letters:
        if stdin.endless or stdin.perhaps or not (stdin.piped or stdin.data):
            return None
        text = os.fsdecode(stdin.data)
        return Script(text, shell, shell, tuple(rest), dash, options, reads_itself=True)
    file, *arguments = rest
    entry = here.state.entry(file)
    if entry is None and not here.asking.pipes.get(file):
        if dash:
            return NotRun(f"{shell}: 0: cannot open {file}: No such file", 2)
        status = 1 if "errexit" in options else 127
        return NotRun(f"{shell}: {file}: No such file or directory", status)
    if entry is not None and entry.perms.startswith("d"):
        return None if dash else NotRun(f"{file}: {file}: Is a directory", 126)
    known = content(here, file)
    if known is None:
        return None
    return Script(known, file, file, tuple(arguments), dash, options)


def _file(here: Environment, words: Sequence[str]) -> Script | NotRun | None:
    """Return the script in a file that is run by its path."""
    path, *arguments = words
    entry = here.state.entry(path)
    wrong = _refused(here, path, entry)
    if wrong is not None:
        return wrong
    text = content(here, path)
    if text is None or (not text.isprintable() and "\0" in text):
        return None
    match = _SHEBANG.match(text)
    if match is None:
        if text.startswith("#!"):
            return None
        return Script(text, path, path, tuple(arguments))
    interpreter, option = match[1], match[2] or ""
    if interpreter == "/usr/bin/env" and option in SHELLS:
        interpreter, option = f"/bin/{option}", ""
    shell = posixpath.basename(interpreter)
    if shell not in SHELLS or not re.fullmatch("(-[eu]+)?", option):
        return None
    if here.state.entry(interpreter) is None:
        return None
    letters = {"e": "errexit", "u": "nounset"}
    options = frozenset(letters[each] for each in option[1:])
    return Script(text, path, path, tuple(arguments), shell != "bash", options)


def _refused(here: Environment, path: str, entry: FileEntry | None) -> NotRun | None:
    place = here.message_prefix()
    if len(posixpath.basename(path)) > 255:
        raise Abstained("a name that is too long for a file")
    if entry is None:
        return NotRun(f"{place}{path}: No such file or directory", 127)
    if entry.perms.startswith("d"):
        return NotRun(f"{place}{path}: Is a directory", 126)
    if is_root(here.state) and not Test(here.state, ("-x", path)).value():
        return NotRun(f"{place}{path}: Permission denied", 126)
    return None


def content(here: Environment, path: str) -> str | None:
    """Return the text of a file; None if unknown, or if it is not text."""
    piped = here.asking.pipes.get(path)
    data = here.state.read(path) if piped is None else piped
    if data is None or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def read_file(here: Environment, name: str) -> str | None:
    """Return the path of the file that `. NAME` reads; None if it is not found."""
    if "/" in name:
        return name if here.state.entry(name) else None
    path = str(here.state.before.document["env"].get("PATH", ""))
    for directory in (*path.split(":"), "."):
        whole = f"{directory}/{name}" if directory != "." else name
        entry = here.state.entry(whole)
        if entry is not None and entry.perms.startswith("-"):
            return whole
    return None


def refuse_bashisms(text: str) -> None:
    """Abstain for constructs that dash handles differently from Bash."""
    found = _BASHISM.search(text)
    if found:
        raise Abstained(f"dash may read {found[0]!r:.20} in another way")


def fresh_shell(here: Environment, script: Script) -> ContextPatch:
    """Return the patch that resets the shell to a new one with only the exported variables.

    Errors: Abstained if the pristine machine is unknown.
    """
    state = here.state
    if state.pristine is None:
        raise Abstained("the state of a new shell is unknown")
    now, first = state.before.document, state.pristine.context(state.cwd).document
    level = str(now["env"].get("SHLVL", "0"))
    env = {**now["env"], "SHLVL": str(int(level) + 1) if level.isdigit() else "1"}
    env = {name: value for name, value in env.items() if not value.startswith("declare -")}
    settings = {name: value for name, value in first["settings"].items() if name not in env}
    settings |= {f"-o {name}": True for name in script.options}
    theirs = {
        "env": env,
        "settings": settings,
        "shell_options": {**first["shell_options"], **script.shopts},
        "functions": first["functions"],
        "aliases": first["aliases"],
    }
    return diff_documents({area: now[area] for area in theirs}, theirs)


def is_script(name: str) -> bool:
    """Whether a command of this name may run a script."""
    return name in SHELLS | READING or ("/" in name and name not in BUILTINS)
