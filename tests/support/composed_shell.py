"""A small machine for Bash's interpreter: a directory of the host, and a runner of a few programs.

Nothing is built and no sandbox is opened. `composed` has the interpreter run lines on the machine,
`executed` has the Bash of the host run them in the directory. Both return the output, the exit
status, and the files afterwards.
"""

from __future__ import annotations

import fnmatch
import os
import posixpath
import signal
import stat
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from shioenv.bash.builtins import BUILTINS
from shioenv.bash.scan import Refused
from shioenv.bash.words import n_assignments
from shioenv.domain.behavior import NOTHING, Behavior
from shioenv.domain.context import Context, pointer
from shioenv.domain.names import file_key
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.runner import Answer, ScriptedRunner, State
from shioenv.errors import Abstained
from shioenv_model.bash.expand import Expander
from shioenv_model.composition.call import Call
from shioenv_model.composition.composed_inputs import answer_broken
from shioenv_model.composition.directories import changed_directory, printed_directory
from shioenv_model.composition.opening import opening, read_redirected_input, umask_of
from shioenv_model.composition.program_evaluation import Walk
from shioenv_model.composition.reading import read_program
from shioenv_model.composition.ruled import ruled
from shioenv_model.composition.variables import Variables
from shioenv_model.memory.world import World

FILES: Mapping[str, bytes] = {
    "a.txt": b"one\ntwo\nthree\n",
    "b c.txt": b"x y\n",
    "empty": b"",
    "numbers": b"3\n1\n2\n",
    "users.csv": b"id,name\n1,ann\n2,bob\n",
    "d/e.txt": b"inner\n",
    "d/f/g.md": b"deep\n",
}
"""The files of the machine; their parent directories exist as well."""

DATE = {"month": "Oct", "day": 16, "year": 2025, "time": "19:43"}
FILTERS = frozenset(
    {"cut", "grep", "head", "rev", "sed", "sort", "tac", "tail", "tr", "uniq", "wc"}
)
"""Programs of the host that read standard input and nothing else."""
ON = ("braceexpand", "hashall", "interactive-comments")
OFF = (
    "allexport", "emacs", "errexit", "errtrace", "functrace", "histexpand", "history", "ignoreeof",
    "keyword", "monitor", "noclobber", "noexec", "noglob", "nolog", "notify", "nounset", "onecmd",
    "physical", "pipefail", "posix", "privileged", "verbose", "vi", "xtrace",
)  # fmt: skip
SHELL_ON = (
    "checkwinsize", "cmdhist", "complete_fullquote", "extquote", "force_fignore", "globasciiranges",
    "globskipdots", "hostcomplete", "interactive_comments", "patsub_replacement", "progcomp",
    "promptvars", "sourcepath",
)  # fmt: skip
SHELL_OFF = (
    "autocd", "assoc_expand_once", "cdable_vars", "cdspell", "checkhash", "checkjobs",
    "compat31", "compat32", "compat40", "compat41", "compat42", "compat43", "compat44",
    "direxpand", "dirspell", "dotglob", "execfail", "expand_aliases", "extdebug", "extglob",
    "failglob", "globstar", "gnu_errfmt", "histappend", "histreedit", "histverify", "huponexit",
    "inherit_errexit", "lastpipe", "lithist", "localvar_inherit", "localvar_unset",
    "login_shell", "mailwarn", "no_empty_cmd_completion", "nocaseglob", "nocasematch",
    "noexpand_translation", "nullglob", "progcomp_alias", "restricted_shell", "shift_verbose",
    "varredir_close", "xpg_echo",
)  # fmt: skip
"""The options of `shopt` that are on and off in a new shell."""
PATH = "/usr/bin:/bin"
WHOLE = ("/", "/bin", "/dev", "/etc", "/tmp", "/usr", "/usr/bin")
_LANG = "C.UTF-8"


@dataclass(frozen=True)
class Done:
    """The results of lines."""

    output: str
    status: int
    files: Mapping[str, tuple[str, bytes | None]]
    """The permissions of each file, and its content; None for a path that is no file, or
    unknown."""


def make_files(directory: Path) -> None:
    """Put the machine's files into an empty directory."""
    for name, content in FILES.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(0o644)
    for each in directory.rglob("*"):
        if each.is_dir():
            each.chmod(0o755)


def environment(directory: Path) -> dict[str, str]:
    """Return the variables that the shell gets from outside."""
    return {"HOME": str(directory), "LANG": _LANG, "PATH": PATH}


def machine(directory: Path) -> World:
    """Return the machine with only the files of a directory, and a few directories besides."""
    start = os.fsencode(directory)
    made = entry(0o100644, 0)
    files = {name: entry(0o40755, 4096) for name in WHOLE}
    files |= {
        file_key(os.fsencode(each), start): entry(0o40755, 4096)
        for each in (directory, *directory.parents)
    }
    files["/bin/sh"] = files["/bin/bash"] = entry(0o100755, 9)
    files["/dev/null"] = entry(0o20666, 0)
    contents: dict[str, bytes] = {}
    for file in directory.rglob("*"):
        what = file.lstat()
        size = what.st_size if file.is_file() else 4096
        files[file_key(os.fsencode(file), start)] = entry(what.st_mode, size)
        if file.is_file():
            contents[str(file)] = file.read_bytes()
    document: dict[str, Any] = dict(ScriptedRunner().context(str(directory)).document)
    document |= {
        "fs": files,
        "umask": "0022",
        "env": environment(directory) | {"PWD": str(directory), "SHLVL": "0"},
        "settings": {
            "EUID": 'declare -ir EUID="0"', "IFS": " \t\n", "OPTIND": "1", "OPTERR": "1",
            **{f"-o {name}": name in ON for name in (*ON, *OFF)},
        },
        "shell_options": {name: name in SHELL_ON for name in sorted((*SHELL_ON, *SHELL_OFF))},
    }  # fmt: skip
    return World(Context(document), contents, made)


def entry(mode: int, size: int) -> dict[str, Any]:
    return {
        "perms": stat.filemode(mode), "links": 1, "owner": "root", "group": "root", "size": size,
        **DATE,
    }  # fmt: skip


class Programs:
    """A runner of single commands: Bash's own rules, and a few programs implemented here.

    `asked` lists the commands in order.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        assert state is not None
        return self.answer_call(Call.parse(shell_input), state).behavior

    def answer_call(self, call: Call, state: State) -> Answer:
        """Return a command's behavior. Errors: Abstained."""
        self.asked.append(call.text)
        return Answer(self._answered(call, state))

    def _answered(self, call: Call, state: State) -> Behavior:
        opened = opening(call, state, entry(0o100644, 0))
        if opened is not None:
            return opened
        fed = read_redirected_input(call, state)
        if fed is not None:
            return self._answered(*fed)
        for rule in (printed_directory, changed_directory, ruled):
            found = rule(call, state)
            if found is not None:
                return found
        expander = Expander(Variables(state))
        first = n_assignments(call.words)
        words = [field for word in call.words[first:] for field in expander.fields(word)]
        replaces = words[:1] == ["exec"]
        name, *operands = words[1:] if replaces else words
        if name in FILTERS:
            return filtered((name, *operands), state.stdin)
        if name == "env":
            return _env([*call.words[:first]], state)
        if name in PROGRAMS:
            return PROGRAMS[name](operands, state)
        found = ruled(Call.of([name, *operands]), state) if first else None
        if found is not None:
            return found
        if name in BUILTINS or "/" in name:
            raise Abstained(f"the machine has no {call.text!r:.60}")
        reason = "not found" if replaces else "command not found"
        return wrong(127, f"bash: line 1: {'exec: ' * replaces}{name}: {reason}\n")


@lru_cache(maxsize=1000)
def filtered(words: Sequence[str], stdin: bytes) -> Behavior:
    """Return the output of a program of the host for its standard input."""
    done = subprocess.run(
        [*words], input=stdin, capture_output=True, check=False, env={"PATH": PATH, "LANG": _LANG}
    )
    return Behavior(
        done.returncode, done.stdout + done.stderr, stdout=done.stdout, stderr=done.stderr
    )


def said(text: bytes | str, *operations: Operation) -> Behavior:
    data = text if isinstance(text, bytes) else os.fsencode(text)
    return Behavior(0, data, ContextPatch(operations), stdout=data, stderr=b"")


def wrong(status: int, text: str) -> Behavior:
    data = os.fsencode(text)
    return Behavior(status, data, stdout=b"", stderr=data)


def _key(state: State, path: str) -> str:
    return file_key(os.fsencode(state.resolve(path)), os.fsencode(state.cwd))


def _cat(words: Sequence[str], state: State) -> Behavior:
    if not words:
        return said(state.stdin)
    pipes = {word: state.written.get(word) for word in words if word.startswith("/dev/fd/")}
    contents = [pipes.get(word) or state.read(word) for word in words]
    if words == ["nofile"]:
        return wrong(1, "cat: nofile: No such file or directory\n")
    if None in contents:
        raise Abstained("a file that the machine cannot read")
    return said(b"".join(each or b"" for each in contents))


def _touch(words: Sequence[str], state: State) -> Behavior:
    mode = stat.S_IFREG | 0o666 & ~umask_of(state)
    new = [_key(state, word) for word in words if not state.entry(word)]
    made = said(b"", *(("a", pointer("fs", name), entry(mode, 0)) for name in new))
    return replace(made, content_digests=dict.fromkeys(new, NOTHING))


def _mkdir(words: Sequence[str], state: State) -> Behavior:
    mode = stat.S_IFDIR | 0o777 & ~umask_of(state)
    return said(b"", *(("a", pointer("fs", _key(state, w)), entry(mode, 4096)) for w in words))


def _rm(words: Sequence[str], state: State) -> Behavior:
    names = [_key(state, word) for word in words if not word.startswith("-")]
    gone = [
        name
        for name in state.before.document["fs"]
        if any(name == each or name.startswith(f"{each}/") for each in names)
    ]
    return said(b"", *(("r", pointer("fs", name)) for name in gone))


def _mv(words: Sequence[str], state: State) -> Behavior:
    old, new = (_key(state, word) for word in words)
    moved = [
        (name, new + name.removeprefix(old))
        for name in state.before.document["fs"]
        if name == old or name.startswith(f"{old}/")
    ]
    return said(b"", *(("m", pointer("fs", one), pointer("fs", two)) for one, two in moved))


def _ls(words: Sequence[str], state: State) -> Behavior:
    return said("".join(f"{name}\n" for name in state.names(*words) if name[0] != "."))


def _find(words: Sequence[str], state: State) -> Behavior:
    """`find PLACE [-type T] [-name PATTERN] [-print0]`."""
    place, *tests = words
    above = state.resolve(place)
    files = {
        posixpath.normpath(posixpath.join(state.cwd, n)): n for n in state.before.document["fs"]
    }
    found = []
    for path in sorted(files):
        kind = state.before.document["fs"][files[path]]["perms"][0]
        rest = path[len(above) :] if path == above or path.startswith(f"{above}/") else None
        pairs = zip(tests[::2], tests[1::2], strict=False)
        if rest is not None and all(
            fnmatch.fnmatchcase(posixpath.basename(path), value)
            if test == "-name"
            else {"f": "-", "d": "d"}[value] == kind
            for test, value in pairs
        ):
            found.append(place + rest)
    end = "\0" if tests[-1:] == ["-print0"] else "\n"
    return said("".join(f"{each}{end}" for each in found))


def _env(assignments: Sequence[str], state: State) -> Behavior:
    variables = dict(state.before.document["env"])
    variables |= dict(each.split("=", 1) for each in assignments)
    return said("".join(f"{name}={value}\n" for name, value in sorted(variables.items())))


PROGRAMS: Mapping[str, Callable[[Sequence[str], State], Behavior]] = {
    "cat": _cat, "touch": _touch, "mkdir": _mkdir, "rm": _rm, "rmdir": _rm, "mv": _mv, "ls": _ls,
    "find": _find, "wait": lambda words, state: said(b""),
    "mktemp": lambda words, state: _touch(["made.tmp"], state),
}  # fmt: skip


def composed(lines: Sequence[str], directory: Path, runner: Programs | None = None) -> Done:
    """Return the interpreter's answer to lines typed one after the other. Errors: Abstained."""
    state, runner = machine(directory).state(), runner or Programs()
    output = b""
    for line in lines:
        if state.carried.ended:
            break
        answer = composed_line(line, state, runner)
        output += answer.behavior.output
        state = state.after(line, answer.behavior, answer.written, answer.carried)
    files = {
        name: (value["perms"], state.read(posixpath.join(state.cwd, name)))
        for name, value in state.before.document["fs"].items()
        if name != "." and not name.startswith(("/", "../"))
    }
    return Done(output.decode("utf-8", "surrogateescape"), state.status, files)


def composed_line(line: str, state: State, runner: Programs) -> Answer:
    """Return the interpreter's answer to one line in a state. Errors: Abstained; Refused."""
    try:
        extended = bool(state.before.document["shell_options"]["extglob"])
        program = read_program(line, extended=extended)
    except Refused as refused:
        answer = answer_broken(runner, refused, line, state)
        if answer is None:
            raise
        return answer
    return Walk(runner, state, line).answer(program)


def executed(lines: Sequence[str], directory: Path) -> Done:
    """Run the lines in the directory with the Bash of this host."""
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", "\n".join(lines)],
        cwd=directory, env=environment(directory), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, umask=0o022,
        preexec_fn=partial(signal.signal, signal.SIGHUP, signal.SIG_DFL),  # nohup ignores it
    )  # fmt: skip
    files = {
        str(file.relative_to(directory)): (
            stat.filemode(file.lstat().st_mode),
            file.read_bytes() if file.is_file() else None,
        )
        for file in directory.rglob("*")
    }
    return Done(done.stdout.decode("utf-8", "surrogateescape"), done.returncode, files)
