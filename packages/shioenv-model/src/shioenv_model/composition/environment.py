"""The shell execution environment of commands (POSIX 2.12).

It comprises open files, variables, functions, parameters, the last exit status, and the state left
by earlier commands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from shioenv.bash.builtins import LEAVING_STDIN
from shioenv.bash.program import Program, Redirect, Simple
from shioenv.bash.words import quoted
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import keys, pointer
from shioenv.domain.names import name_bytes
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import Runner, State
from shioenv.errors import Abstained
from shioenv_model.bash.arithmetic import Complaint
from shioenv_model.bash.expand import Expander
from shioenv_model.bash.patterns import EXTENDED, SPECIAL, is_pattern
from shioenv_model.bash.unexpanded import braces, references
from shioenv_model.bash.work import COPIED, spend
from shioenv_model.composition.call import Call
from shioenv_model.composition.command_replay import fed, write_commands
from shioenv_model.composition.frames import (
    Buffer,
    Discard,
    Exit,
    Frame,
    OpenFile,
    Over,
    Own,
    Position,
    Result,
    Return,
    Sink,
    Stdin,
    Streams,
    copied,
)
from shioenv_model.composition.interpreter_state import Asker, CallSetting
from shioenv_model.composition.reading import read_program
from shioenv_model.composition.scoping import ShellVariables
from shioenv_model.composition.variables import Value

_OF_RUN = frozenset(
    {
        *("?", "!", "-", "_", "0", "BASH", "BASH_COMMAND", "BASH_EXECUTION_STRING"),
        *("BASH_LINENO", "BASH_REMATCH", "BASH_SOURCE", "BASH_SUBSHELL", "BASH_VERSION"),
        *("FUNCNAME", "LINENO", "PIPESTATUS", "SECONDS", "SHELLOPTS"),
    }
)
"""Parameters that only this run can provide."""

_PARAMETERS = frozenset({"@", "*", "#", *"123456789"})
_CHANGING = re.compile(r"\$\(\(|\$\[|\$\{[^}]*[?=]")
"""An expansion that may set a variable, or that Bash may reject."""

_OF_ACCESS = (["perms"], ["owner"], ["group"], ["links"])
"""Attributes of a file that may change while the file is being written."""

STAYING = re.compile(r"cd(?:\s+(?:-[LP]+|--))*\s+[^\s;&|()<>$`]+")
"""A `cd` to one directory. It sets `OLDPWD` even if that is the current directory."""

_BLOCK = 4096
"""Minimum bytes that a reading program requests at once."""


class Environment(ShellVariables):
    """The environment of the commands of one input, and the `Scope` of their expansions.

    `runner` answers for single commands. The input `text` starts from `state`. `walk` runs the
    program of a substitution, whose line numbers continue from the shell's line.
    """

    def __init__(
        self, runner: Runner, state: State, text: str, walk: Callable[[Program], None]
    ) -> None:
        self.start, self.input = state, text
        self.asking = Asker(runner, state, text)
        self.expander = Expander(self)
        self.output = Buffer()
        """Output of the whole input."""
        stdin = Stdin(state.stdin, piped=bool(state.stdin), shared=True)
        self.streams = Streams({1: self.output, 2: self.output}, stdin)
        self.own, self.place = Own(state.carried), Position()
        self.own.traps = {
            name[5:]: str(text)
            for name, text in state.before.document["settings"].items()
            if name.startswith("trap ")
        }
        self.own.last = None if state.history else self.own.name
        self.own.cluster = -1 if any("getopts" in line for line in state.history) else 0
        self.result = Result(statuses=(state.status,))
        self.status = state.status
        """The last exit status."""
        self.children: dict[str, int] = {}
        """The status of each background job, by the number that stands for its process."""
        self.racing = False
        """Whether a background job writes to the input's output at an unknown moment."""
        self.beside: tuple[tuple[str, ...], ...] = ()
        """Words of the pipeline stages that run beside the next command, if that lists
        processes."""
        self._walk = walk

    @property
    def arguments(self) -> Sequence[str]:
        """See `Scope.arguments`. Errors: Abstained if they are unknown."""
        if self.own.carried.arguments is None:
            raise Abstained("the positional parameters are unknown")
        return self.own.carried.arguments

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Run the commands in the block one level deeper, as shown by `set -x`."""
        place = self.place
        place.depth += 1
        try:
            yield
        finally:
            place.depth -= 1

    @contextmanager
    def temporary(self, assignments: Sequence[str]) -> Iterator[None]:
        """Perform the assignments before a function or builtin, until it ends.

        Errors: Abstained for arrays and `+=`; Complaint.
        """
        if not assignments:
            yield
            return
        frame = Frame(temporary=True)
        with self.scope(frame):
            for word in assignments:
                name, equals, text = word.partition("=")
                if not equals or not name.isidentifier() or text.startswith("("):
                    raise Abstained(f"{word!r:.40} before a builtin is not supported")
                value = self.expander.text(text, assigned=True)
                frame.hidden.setdefault(name, self.value_of(name))
                self.store(name, Value(value, None, frozenset("x")))
            yield

    def substitute(self, source: str) -> str:
        """See `Scope.substitute`."""
        data = self.captured(source)
        if b"\0" in data:
            if self.tries:
                raise Complaint("a NUL byte")
            self.complain("warning: command substitution: ignored null byte in input")
        return os.fsdecode(data.replace(b"\0", b""))

    def connect(self, source: str, *, reading: bool) -> str:
        """See `Scope.connect`."""
        if not reading or len(self.asking.pipes) > 3:
            raise Abstained(
                ">(…) runs concurrently with its command" if not reading else "too many <(…)"
            )
        data = self.captured(source)
        path = f"/dev/fd/{63 - len(self.asking.pipes)}"
        self.asking.pipes[path] = data
        return path

    def captured(self, source: str) -> bytes:
        """Return the output of a program in a subshell.

        Errors: Abstained if only a part of it is known.
        """
        program = self.program(source)
        buffer = Buffer()
        fds = {**self.streams.fds, 1: buffer}
        with self.to(Streams(fds, self.streams.stdin)), self.subshell(), self.asking.other_pipes():
            inherits = self.state.before.document["shell_options"].get("inherit_errexit")
            if self.is_on("errexit") and not inherits and not self.is_on("posix"):
                off = ContextPatch((("=", pointer("settings", "-o errexit"), False),))
                self.advance("set +e", Behavior(0, b"", off))
            with self.deeper():
                self._walk(_read_files(program))
        self.result.substituted = self.status
        if buffer.endless:
            raise Abstained("a substitution prints more than is known")
        return bytes(buffer.data)

    def ask(
        self,
        call: Call,
        *,
        stdin: bytes = b"",
        separate: bool = False,
        piped: bool = False,
        final: bool = False,
    ) -> Behavior:
        """Return a command's behavior without changing the environment; see `Asker.ask`."""
        place = os.fsencode(self.message_prefix())
        beside, self.beside = self.beside, ()
        how = CallSetting(
            stdin=stdin, separate=separate, piped=piped, final=final, beside=beside, place=place
        )
        behavior = self.asking.ask(call, how)
        return in_dash_wording(behavior, place) if self.place.is_dash else behavior

    def advance(self, text: str, behavior: Behavior) -> None:
        """Advance to the state after a command: see `Asker.advance`."""
        moved = any(operation[1] == "/cwd" for operation in behavior.patch.operations)
        if moved or (not behavior.exit_code and STAYING.fullmatch(text)):
            self.carry(left=self.state.before.document["env"].get("PWD"))
        for name, target in self.asking.advance(text, behavior):
            for sink in self.streams.fds.values():
                if isinstance(sink, OpenFile) and sink.name == name:
                    sink.name = target

    def put(
        self,
        call: Call,
        name: str,
        streams: Streams | None = None,
        *,
        final: bool = False,
    ) -> None:
        """Query a command, advance to the state after it, and write its output.

        Input and output are `streams` (None: those of the shell). `name` is the command's name.
        Errors: Over if the command timed out or died by a signal; Abstained.
        """
        streams = streams or self.streams
        fds, stdin = streams.fds, streams.stdin
        separate = fds[1] is not fds[2]
        reads = name not in LEAVING_STDIN and not call.reads_what_it_opens
        data = stdin.data if reads else b""
        piped = stdin.piped and reads
        behavior = self.ask(call, stdin=data, separate=separate, piped=piped, final=final)
        if stdin.endless and data:
            half = self.ask(call, stdin=data[: len(data) // 2], separate=separate)
            if _said(half) != _said(behavior):
                raise Abstained("more comes through a pipe than is known")
        if stdin.shared and (data or stdin.perhaps) and name not in LEAVING_STDIN:
            self._consume(call, stdin, behavior, separate=separate)
        self.asking.know(behavior.stdout if separate and behavior.stdout else behavior.output)
        self.asking.know(data)
        self.asking.learn(call.text, behavior)
        again = _made_again(behavior.patch) if name == "mktemp" else None
        self.advance(again or (fed(call.text, data) if data else call.text), behavior)
        for sink in set(fds.values()):
            if isinstance(sink, OpenFile) and sink.name is not None:
                self._check_own(sink.name, behavior)
        with self.to(streams):
            truncated = behavior.output_truncated
            if separate:
                self.write(fds[1], behavior.stdout, endless=truncated)
                self.write(fds[2], behavior.stderr)
            else:
                self.write(fds[1], behavior.output, endless=truncated)
        self.status = behavior.exit_code
        if behavior.timed_out or behavior.died_by_signal:
            raise Over(behavior)

    def _check_own(self, name: str, behavior: Behavior) -> None:
        """Abstain if a command changes the file to which its output is redirected."""
        for operation in behavior.patch.operations:
            area, *names = keys(operation[1]) or [""]
            if area != "fs" or names[:1] != [name] or operation[0] == "r":
                continue
            if names[1:] not in _OF_ACCESS:
                raise Abstained("a command changes the file that its output goes to")

    def _consume(self, call: Call, stdin: Stdin, behavior: Behavior, *, separate: bool) -> None:
        """Determine how much of a shared input a command consumed: all, nothing, or unknown."""
        data = stdin.data or stdin.perhaps
        fuller = behavior if stdin.data else self.ask(call, stdin=data, separate=separate)
        empty = self.ask(call, separate=separate) if stdin.data else behavior
        if _said(fuller) == _said(empty):
            return
        if not stdin.data:
            raise Abstained("how much input each command consumes is unknown")
        if stdin.seekable or len(stdin.data) > _BLOCK:
            # if its behavior changes with more data, the command has read to the end
            more = self.ask(call, stdin=stdin.data + b"0 ~\n", separate=separate)
            if _said(more) == _said(behavior):
                stdin.perhaps = stdin.data
        stdin.data = b""

    def report(self, data: bytes) -> None:
        """Write to standard error."""
        self.write(self.streams.fds[2], data)

    def write(self, sink: Sink, data: bytes | None, *, endless: bool = False) -> None:
        """Write output to a sink; `endless`: the data is incomplete. Errors: Abstained."""
        spend(1 + len(data or b"") // COPIED)
        if isinstance(sink, Buffer):
            if sink is self.output and data:
                self._check_printed(data)
            sink.data += data or b""
            sink.endless |= endless
        elif isinstance(sink, OpenFile):
            if endless:
                raise Abstained("more is written to a file than is known")
            if data and sink.name is not None:
                self._check_printed(data)
                self._append(sink, data)

    def _check_printed(self, data: bytes) -> None:
        """Abstain if a job prints at an unknown moment, or if `data` has a job's process ID."""
        if self.racing:
            raise Abstained("a background job prints at an unknown moment")
        if any(child.encode() in data for child in self.children):
            raise Abstained("the number of a background process")

    def _append(self, sink: OpenFile, data: bytes) -> None:
        name = str(sink.name)
        entry = self.state.before.entry(name)
        if entry is None:
            raise Abstained("a file that is written to does not exist")
        if not sink.appends and entry.size != sink.offset:
            raise Abstained("a file is written to in two places")
        sink.offset += len(data)
        old = self.state.read(sink.path)
        spend(len(old or b"") // COPIED)
        operations: list[tuple[Any, ...]] = []
        if not sink.fresh:
            again = Redirect(None, ">>", quoted(sink.path))
            touched = self.ask(Call("echo", opens=again))
            operations = [
                operation
                for operation in touched.patch.operations
                if keys(operation[1])[-1] != "size"
            ]
            sink.fresh = True
        operations.append(("=", pointer("fs", name, "size"), entry.size + len(data)))
        digests = {}
        if old is not None and len(old) == entry.size:
            digests = {name: self.asking.know(old + data)}
        behavior = Behavior(0, b"", ContextPatch(tuple(operations)), content_digests=digests)
        self.advance(f"{write_commands(data)} >> {quoted(sink.path)}", behavior)

    @contextmanager
    def to(self, streams: Streams) -> Iterator[None]:
        """Redirect input and output to `streams` in the block."""
        saved, self.streams = self.streams, Streams(dict(streams.fds), streams.stdin)
        try:
            yield
        finally:
            self.streams = saved

    @contextmanager
    def subshell(self) -> Iterator[None]:
        """Run the commands in the block in a subshell, whose changes to the shell are discarded."""
        mark, children = self.asking.mark(), dict(self.children)
        saved, self.own = self.own, copied(self.own)
        for inherits, names in (
            (self.is_on("errtrace") or self.is_extended, ("ERR",)),
            (self.traces_functions, ("DEBUG", "RETURN")),
        ):
            if inherits:
                self.own.traps |= {each: saved.traps[each] for each in names if each in saved.traps}
        self.place.level += 1
        loops, refused = self.place.loops, self.place.refused
        self.place.loops, self.place.refused = 0, 1
        try:
            try:
                yield
            except Exit as ended:
                self.status = ended.status
            self.leave_shell()
        except Exit as ended:
            self.status = ended.status
        except Return as returned:
            self.status = returned.status
        except Discard:
            self.status = 1
        finally:
            self.place.level -= 1
            self.place.loops, self.place.refused = loops, refused
            self.own, self.children = saved, children
        self.asking.leave(mark)

    def program(self, text: str) -> Program:
        """Parse a text under the shell's options. Errors: see `read_program`."""
        extended = bool(self.state.before.document["shell_options"].get("extglob"))
        return read_program(text, extended=extended)

    def leave_shell(self) -> None:
        """Run the trap EXIT of a shell that ends. Errors: Exit for an `exit` in the trap."""
        action, status = self.own.traps.pop("EXIT", None), self.status
        if action:
            self.place.line = 1
            self._walk(self.program(action))
            self.status = status

    @property
    def is_extended(self) -> bool:
        """Whether `shopt extdebug` is on."""
        return bool(self.state.before.document["shell_options"].get("extdebug"))

    @property
    def traces_functions(self) -> bool:
        """Whether functions and subshells inherit the traps DEBUG and RETURN."""
        return self.is_on("functrace") or self.is_extended

    @property
    def refused_status(self) -> int:
        """The exit status of a shell that ends after a failed expansion."""
        return 1 if self.is_on("errexit") else self.place.refused

    def is_on(self, option: str) -> bool:
        """Whether an option of `set -o` is on."""
        return bool(self.state.before.document["settings"].get(f"-o {option}"))

    def is_matched(self, word: str) -> bool:
        """Whether a word contains a pathname pattern."""
        if not (SPECIAL & set(word) or EXTENDED.search(word)) or self.is_unknown(word):
            return False
        extended = bool(self.state.before.document["shell_options"].get("extglob"))
        return any(
            is_pattern(self.expander.pattern(one), extended=extended) for one in braces(word)
        )

    def is_ours(self, word: str) -> bool:
        """Whether a word depends on values that only this run knows."""
        found = references(word)
        if found.substitutes or _CHANGING.search(word):
            return True
        known = self.asking.set_here | _OF_RUN
        if self.is_on("nounset"):
            known |= found.names
        if self.own.carried.arguments != () or self.place.calls:
            known |= _PARAMETERS
        if not found.names & known and "${" not in word:
            return False
        self.tries = True
        try:
            for one in braces(word):
                self.expander.fields(one)
        except Complaint:
            return True
        except Abstained:
            return bool(found.names & (_OF_RUN | _PARAMETERS))
        finally:
            self.tries = False
        return True

    def changes(self, word: str) -> bool:
        """Whether expanding a word may set a variable."""
        return _CHANGING.search(word) is not None

    def is_unknown(self, word: str) -> bool:
        """Whether a word contains a substitution or a special parameter (`$?`, `$1`)."""
        found = references(word)
        return found.substitutes or not all(name.isidentifier() for name in found.names)


def in_dash_wording(behavior: Behavior, place: bytes) -> Behavior:
    """Rewrite Bash's own message to the wording of dash. Errors: Abstained."""
    if place not in behavior.output:
        return behavior
    if not behavior.output.startswith(place) or behavior.output.count(b"\n") > 1:
        raise Abstained("a message that dash may write in another way")
    said = behavior.output.removeprefix(place)
    missing = re.fullmatch(rb"(\S+): command not found\n", said)
    elsewhere = re.fullmatch(rb"cd: (.+): (?:No such file or directory|Not a directory)\n", said)
    if missing:
        said = missing[1] + b": not found\n"
    elif elsewhere:
        said = b"cd: can't cd to " + elsewhere[1] + b"\n"
        behavior = replace(behavior, exit_code=2)
    else:
        raise Abstained("a message that dash may write in another way")
    return replace(behavior, output=place + said, stderr=behavior.stderr and place + said)


def _read_files(program: Program) -> Program:
    """Rewrite `$(< file)` to `cat < file`; return any other program unchanged."""
    pipelines = [pipeline for job in program for _, pipeline in job.pipelines]
    command = pipelines[0].stages[0] if pipelines else None
    if len(pipelines) != 1 or not isinstance(command, Simple) or command.words:
        return program
    if [redirect.operator for redirect in command.redirects] != ["<"]:
        return program
    cat = replace(pipelines[0], stages=(replace(command, words=("cat",)),))
    return (replace(program[0], pipelines=(("", cat),)),)


def _made_again(patch: ContextPatch) -> str | None:
    """Return commands that recreate the files that `mktemp` made: run again, it chooses new names.

    None if `mktemp` created nothing, or had other effects.
    """
    made = []
    for code, path, *entry in patch.operations:
        area, *names = keys(path)
        if code != "a" or area != "fs" or len(names) != 1:
            return None
        file = quoted(os.fsdecode(name_bytes(names[0])))
        directory = entry[0]["perms"].startswith("d")
        made.append(f"mkdir -m 700 {file}" if directory else f"(umask 077; : > {file})")
    return "; ".join(made) or None


def _said(behavior: Behavior) -> tuple[object, ...]:
    return behavior.exit_code, behavior.output, behavior.stdout, behavior.stderr, behavior.patch
