"""A Bash program walked: who asks which command in which state, and where its output goes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.domain.names import file_key, name_bytes
from shioenv.domain.patch import ContextPatch
from shioenv.domain.pointer import keys, pointer
from shioenv.domain.runner import Answer, Runner, State
from shioenv.errors import Abstained
from shioenv.modeling.asking import Asking, How
from shioenv.modeling.changes import composed
from shioenv.modeling.channels import Buffer, Nowhere, OpenFile, Sink, Stdin
from shioenv.modeling.patterns import SPECIAL, is_pattern, matches
from shioenv.modeling.program import (
    Case,
    Command,
    Counting,
    For,
    Function,
    Group,
    If,
    Job,
    Pipeline,
    Program,
    Redirect,
    Redirected,
    Simple,
    Verbatim,
    While,
)
from shioenv.modeling.reading import read_program
from shioenv.modeling.replay import fed, written
from shioenv.modeling.unrolling import Found, arguments_passed, found
from shioenv.modeling.words import Expander, braces, quoted, references

_READ_NOTHING = frozenset(
    {
        *(":", "[", "alias", "cd", "command", "declare", "dirs", "echo", "export", "false", "hash"),
        *("help", "let", "popd", "printf", "pushd", "pwd", "readonly", "set", "shift", "shopt"),
        *("test", "true", "type", "typeset", "ulimit", "umask", "unalias", "unset", "wait"),
    }
)
"""Builtins that leave standard input alone."""

_LISTING = (("ps",), ("pstree",), ("top",))
"""Programs that show what runs beside them."""

_DECLARING = frozenset({"declare", "export", "readonly", "typeset"})
"""Builtins whose operands are assignments: their values are not split."""

_OF_ACCESS = (["perms"], ["owner"], ["group"], ["links"])
"""What may change of a file while it is written to."""

_ENDING = frozenset({"break", "continue", "return", "exit", "exec"})
_UNKNOWN = frozenset({"!", "_", "BASHPID", "BASH_COMMAND", "FUNCNAME", "HISTCMD"})
LONGEST_VALUE = 131_072
"""Characters of a variable that is followed; ours: as much as one argument may have."""

_SPECIAL = frozenset({"RANDOM", "SRANDOM", "SECONDS", "LINENO", "OLDPWD", "PPID", "UID", "EUID"})
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.ASCII | re.DOTALL)
_ATTRIBUTES = re.compile(r'declare -[irx]+ \w+="([^"\\$`]*)"', re.ASCII)
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_BLOCK = 4096
"""Bytes that a program reads at once at least, where it reads."""


class _Exit(Exception):  # noqa: N818 - control flow
    """The shell ends with this status."""

    def __init__(self, status: int) -> None:
        self.status = status


class _Loop(Exception):  # noqa: N818 - control flow
    """`break`, or `continue`, out of so many loops."""

    def __init__(self, levels: int, *, goes_on: bool) -> None:
        self.levels, self.goes_on = levels, goes_on


class _Return(Exception):  # noqa: N818 - control flow
    """`return` with this status."""

    def __init__(self, status: int) -> None:
        self.status = status


class _Over(Exception):  # noqa: N818 - control flow
    """The whole run is over: out of time, or its shell was killed."""

    def __init__(self, behavior: Behavior) -> None:
        self.behavior = behavior


class Shell:
    """One run of a program over a runner, from a state. Also the scope its words expand in."""

    def __init__(self, runner: Runner, state: State, text: str) -> None:
        self.arguments: Sequence[str] = ()
        self._start, self._input = state, text
        self._asking = Asking(runner, state, text)
        self._expander = Expander(self)
        self._output = Buffer()
        self._fds: dict[int, Sink] = {1: self._output, 2: self._output}
        self._stdin = Stdin(state.stdin, piped=bool(state.stdin), shared=True)
        self._functions: dict[str, Function] = {}
        self._opened: dict[int, Sink | int] = {}
        self._status, self._line, self._level, self._calls = 0, 1, 0, 0
        self._above, self._end_line = 0, 1
        self._final = 0
        self._last: str | None = None
        self._statuses: Sequence[int] = (0,)
        self._substituted: int | None = None
        self._conditions = 0
        self._racing, self._has_jobs, self._refused_whole = False, False, False
        self._beside = ""
        self._left: str | None = None

    @property
    def state(self) -> State:
        """See `Scope.state`."""
        return self._asking.state

    # what the composition calls

    def answer(self, program: Program) -> Answer:
        """What the program does, put together. Errors: Abstained."""
        self._final = _replacing(program)
        over: Behavior | None = None
        try:
            self._program(program)
        except _Exit as ended:
            self._status = ended.status
        except _Over as ended:
            over, self._status = ended.behavior, ended.behavior.exit_code
        except (_Loop, _Return):
            raise Abstained("break, continue or return outside of what it leaves") from None
        asking = self._asking
        behavior = Behavior(
            exit_code=self._status,
            output=bytes(self._output.data),
            patch=composed(self._start.before.document, asking.patches, self._start.cwd),
            content_digests=asking.digests,
            timed_out=over is not None and over.timed_out,
            died_by_signal=over.died_by_signal if over else None,
            volatile=asking.volatile,
            shell_state_known=asking.shell_state_known,
        )
        return Answer(behavior, asking.confidence, "composition")

    # the scope of words

    def variable(self, name: str) -> str | None:
        """See `Scope.variable`."""
        if name == "?":
            return str(self._status)
        if name == "BASH_SUBSHELL":
            return str(self._level)
        if name == "LINENO":
            return str(self._line)
        if name == "PIPESTATUS":
            return " ".join(map(str, self._statuses))
        if name == "_" and self._last is not None:
            return self._last
        if name == "OLDPWD" and self._left is not None:
            return self._left
        if name in _UNKNOWN:
            raise Abstained(f"${name} is beyond it")
        if not name.isidentifier() or name in _SPECIAL or name.startswith("BASH"):
            return os.fsdecode(self._ask(f'printf %s "${name}"', separate=True).stdout or b"")
        document = self.state.before.document
        value = document["env"].get(name, document["settings"].get(name))
        if isinstance(value, str) and value.startswith("declare -"):
            match = _ATTRIBUTES.fullmatch(value)
            if match is None:
                raise Abstained(f"the variable {name} is more than a text")
            return match[1]
        if isinstance(value, str) and (value.startswith("(") or "\\x" in value):
            raise Abstained(f"the variable {name} may be more than a text")
        return None if value is None else str(value)

    def assign(self, name: str, value: str) -> None:
        """See `Scope.assign`. Errors: Abstained for a value of more than `LONGEST_VALUE`."""
        if len(value) > LONGEST_VALUE:
            raise Abstained(f"the variable {name} is longer than is followed")
        document = self.state.before.document
        ruled = not (
            name in _SPECIAL | _UNKNOWN
            or name.startswith("BASH")
            or self._has_attributes(name)
            or document["settings"].get("-o allexport")
            or _SURROGATE.search(value)
        )
        self._assign(name, f"{name}={quoted(value)}", value if ruled else None)

    def _has_attributes(self, name: str) -> bool:
        """Whether a variable is more than a text, as numbers, lists and constants are."""
        old = self.state.before.document["settings"].get(name)
        return isinstance(old, str) and old.startswith(("declare -", "("))

    def _assign(self, name: str, text: str, value: str | None) -> None:
        """Sets a variable as `text` does; its value is None where only Bash can tell."""
        document = self.state.before.document
        if value is None:
            behavior = self._ask(text)
            self._advance(text, behavior)
            self._write(self._fds[2], behavior.output)
            self._substituted = behavior.exit_code or self._substituted
            return
        area = "env" if name in document["env"] else "settings"
        code = "=" if name in document[area] else "a"
        patch = ContextPatch(((code, pointer(area, name), value),))
        self._advance(text, Behavior(exit_code=0, output=b"", patch=patch))

    def substitute(self, source: str) -> str:
        """See `Scope.substitute`."""
        data = self._captured(source)
        if b"\0" in data:
            raise Abstained("a substitution prints a NUL byte")
        return os.fsdecode(data)

    def connect(self, source: str, *, reading: bool) -> str:
        """See `Scope.connect`."""
        if not reading or len(self._asking.pipes) > 3:
            raise Abstained(">(…) runs beside its command" if not reading else "too many <(…)")
        data = self._captured(source)
        path = f"/dev/fd/{63 - len(self._asking.pipes)}"
        self._asking.pipes[path] = data
        return path

    def _captured(self, source: str) -> bytes:
        program = read_program(source)
        buffer = Buffer()
        fds = {**self._fds, 1: buffer}
        with self._subshell(), self._to(fds, self._stdin), self._asking.other_pipes():
            self._inside(_read_files(program))
        self._substituted = self._status
        if buffer.endless:
            raise Abstained("a substitution prints more than is known")
        return bytes(buffer.data)

    # asking

    def _ask(
        self,
        text: str,
        *,
        stdin: bytes = b"",
        separate: bool = False,
        piped: bool = False,
        final: bool = False,
    ) -> Behavior:
        # functions were defined nowhere: `bash -c` calls that place the environment
        place = f"{'environment' if self._calls else 'bash'}: line {self._line}: ".encode()
        beside, self._beside = self._beside, ""
        how = How(
            stdin=stdin, separate=separate, piped=piped, final=final, beside=beside, place=place
        )
        return self._asking.ask(text, how)

    def _advance(self, text: str, behavior: Behavior) -> None:
        if any(operation[1] == "/cwd" for operation in behavior.patch.operations):
            self._left = self.state.before.document["env"].get("PWD")
        for name, target in self._asking.advance(text, behavior):
            for sink in self._fds.values():
                if isinstance(sink, OpenFile) and sink.name == name:
                    sink.name = target

    # output

    def _write(self, sink: Sink, data: bytes | None, *, endless: bool = False) -> None:
        if isinstance(sink, Buffer):
            if sink is self._output and data and self._racing:
                raise Abstained("a background job prints at an unknown moment")
            sink.data += data or b""
            sink.endless |= endless
        elif isinstance(sink, OpenFile):
            if endless:
                raise Abstained("more is written to a file than is known")
            if data and sink.name is not None:
                self._append(sink, data)

    def _append(self, sink: OpenFile, data: bytes) -> None:
        name = str(sink.name)
        entry = self.state.before.entry(name)
        if entry is None:
            raise Abstained("a file that is written to is not there")
        if not sink.appends and entry.size != sink.offset:
            raise Abstained("a file is written to in two places")
        sink.offset += len(data)
        old = self.state.read(sink.path)
        operations: list[tuple[Any, ...]] = []
        if not sink.fresh:
            touched = self._ask(f"echo >> {quoted(sink.path)}")
            operations = [
                operation
                for operation in touched.patch.operations
                if keys(operation[1])[-1] != "size"
            ]
            sink.fresh = True
        operations.append(("=", pointer("fs", name, "size"), entry.size + len(data)))
        digests = {}
        if old is not None and len(old) == entry.size:
            digests = {name: self._asking.know(old + data)}
        behavior = Behavior(0, b"", ContextPatch(tuple(operations)), content_digests=digests)
        self._advance(f"{written(data)} >> {quoted(sink.path)}", behavior)

    @contextmanager
    def _to(self, fds: Mapping[int, Sink], stdin: Stdin) -> Iterator[None]:
        saved = self._fds, self._stdin
        self._fds, self._stdin = dict(fds), stdin
        try:
            yield
        finally:
            self._fds, self._stdin = saved

    # programs

    def _program(self, program: Program) -> None:
        for job in program:
            self._end_line = self._above + job.end if job.end else self._end_line
            if job.background:
                self._background(job)
            else:
                self._job(job)

    def _inside(self, program: Program) -> None:
        """A program that is read where the shell is: its lines count on from there."""
        saved = self._above, self._line, self._end_line
        self._above = self._line - 1
        try:
            self._program(program)
        finally:
            self._above, self._line, self._end_line = saved

    def _background(self, job: Job) -> None:
        before = len(self._output.data)
        with self._subshell(), self._to(self._fds, Stdin(b"", piped=False)), suppress(_Over):
            self._job(job)  # nobody waits for what runs out of time
        if len(self._output.data) > before:
            self._racing = True
        self._status = 0
        self._has_jobs = True

    def _job(self, job: Job) -> None:
        last = len(job.pipelines) - 1
        for number, (operator, pipeline) in enumerate(job.pipelines):
            if (operator == "&&" and self._status) or (operator == "||" and not self._status):
                continue
            condition = number < last or pipeline.negated
            self._conditions += condition
            try:
                self._pipeline(pipeline)
            finally:
                self._conditions -= condition
            failed = self._status != 0
            refused, self._refused_whole = self._refused_whole, False
            if pipeline.negated and refused:
                continue  # Bash forgets the ! of a compound command whose redirection fails
            if pipeline.negated:
                self._status = int(not failed)
            elif failed and not condition and not self._conditions and self._is_on("errexit"):
                raise _Exit(self._status)

    def _pipeline(self, pipeline: Pipeline) -> None:
        if len(pipeline.stages) == 1:
            self._command(pipeline.stages[0])
            if isinstance(pipeline.stages[0], Simple | Verbatim):
                self._statuses = (self._status,)
            return
        stages = [
            _merged(stage) if number < len(pipeline.merged) and pipeline.merged[number] else stage
            for number, stage in enumerate(pipeline.stages)
        ]
        for stage in stages[1:]:
            self._open_early(stage)
        statuses: list[int] = []
        self._refused_whole = False
        over: _Over | None = None
        stdin = self._stdin
        for number, stage in enumerate(stages):
            last = number == len(stages) - 1
            buffer = self._fds[1] if last else Buffer()
            self._beside = _beside(stages[number:])
            with self._subshell(), self._to({**self._fds, 1: buffer}, stdin):
                try:
                    self._command(stage)
                except _Over as ended:
                    over = ended
            statuses.append(self._status)
            if isinstance(buffer, Buffer) and not last:
                shared = not isinstance(stage_of(stages[number + 1]), Simple)
                stdin = Stdin(bytes(buffer.data), shared=shared, endless=buffer.endless)
                self._asking.know(stdin.data)
                if over is not None and buffer.data:
                    stdin.endless, over = True, None
        if over is not None:
            raise over
        self._statuses, self._refused_whole, self._beside = statuses, False, ""
        failed = [status for status in statuses if status]
        self._status = failed[-1] if failed and self._is_on("pipefail") else statuses[-1]

    def _is_on(self, option: str) -> bool:
        return bool(self.state.before.document["settings"].get(f"-o {option}"))

    def _open_early(self, stage: Command) -> None:
        """Opens what a later stage writes to: its shell is there before the programs start."""
        redirects = stage.redirects if isinstance(stage, Simple | Redirected) else ()
        for redirect in redirects:
            if redirect.operator not in (">", ">>", ">|", "&>", "&>>"):
                return
            if references(redirect.target).substitutes:
                return
            if isinstance(stage, Simple) and self._touches(stage):
                return
            # what it prints where it fails comes from its own shell
            self._opened[id(redirect)] = self._open(redirect, self._fds)

    @contextmanager
    def _subshell(self) -> Iterator[None]:
        mark = self._asking.mark()
        saved = self.arguments, dict(self._functions), self._last, self._left
        self._level += 1
        try:
            yield
        except _Exit as ended:
            self._status = ended.status
        except _Loop:
            self._status = 0
        except _Return as returned:
            self._status = returned.status
        finally:
            self._level -= 1
            self.arguments, self._functions, self._last, self._left = saved
        self._asking.leave(mark)

    # commands

    def _command(self, command: Command) -> None:
        if isinstance(command, Simple):
            self._simple(command)
        elif isinstance(command, Redirected):
            self._redirected(command)
        elif isinstance(command, Group):
            self._group(command)
        elif isinstance(command, If):
            self._if(command)
        elif isinstance(command, While):
            self._while(command)
        elif isinstance(command, For):
            with self._on_line(command.line):
                self._for(command)
        elif isinstance(command, Counting):
            with self._on_line(command.line):
                self._counting(command)
        elif isinstance(command, Case):
            with self._on_line(command.line):
                self._case(command)
        elif isinstance(command, Function):
            self._functions[command.name] = command
            self._advance(command.text, self._ask(command.text))
            self._status = 0
        else:
            self._verbatim(command)

    def _verbatim(self, command: Verbatim) -> None:
        self._line = self._above + command.line
        found = references(command.text.replace("<(", "< ("))
        if found.substitutes or found.names & _UNKNOWN or "?" in found.names:
            raise Abstained("a substitution inside an expression is beyond it")
        self._put(command.text, command.text.split()[0], self._fds, self._stdin)

    def _redirected(self, command: Redirected) -> None:
        self._line = self._end_line
        opened = self._open_all(command.redirects)
        if isinstance(opened, int):
            self._status, self._refused_whole = opened, True
            return
        fds, stdin, kept = opened
        if kept:
            stdin = self._content(kept)
        with self._to(fds, stdin):
            self._command(command.command)

    def _content(self, redirects: Sequence[str]) -> Stdin:
        """What a compound command reads from a file."""
        if len(redirects) > 1 or not redirects[0].startswith("< "):
            raise Abstained("these redirections of several commands are beyond it")
        behavior = self._ask(f"cat {redirects[0]}", separate=True)
        if behavior.output_truncated:
            raise Abstained("more is read from a file than is known")
        return Stdin(behavior.stdout or b"", shared=True, seekable=True)

    def _group(self, group: Group) -> None:
        if not group.subshell:
            self._program(group.body)
            return
        with self._subshell(), self._on_line(group.line):
            self._program(group.body)

    def _condition(self, program: Program) -> bool:
        self._conditions += 1
        try:
            self._program(program)
        finally:
            self._conditions -= 1
        return self._status == 0

    def _if(self, command: If) -> None:
        for condition, body in command.branches:
            if self._condition(condition):
                self._program(body)
                return
        self._status = 0
        self._program(command.otherwise)

    def _while(self, command: While) -> None:
        status = 0
        while self._condition(command.condition) == command.wanted:
            self._asking.count()
            if not self._once(command.body):
                status = self._status
                break
            status = self._status
        self._status = status

    @contextmanager
    def _on_line(self, line: int) -> Iterator[None]:
        """Where messages say that redirections of compound commands fail."""
        saved, self._end_line = self._end_line, self._above + line
        try:
            yield
        finally:
            self._end_line = saved

    def _for(self, command: For) -> None:
        words = ['"$@"'] if command.words is None else command.words
        values = [field for word in words for field in self._expander.fields(word)]
        self._status = 0
        for value in values:
            self.assign(command.name, value)
            if not self._once(command.body):
                break

    def _counting(self, command: Counting) -> None:
        first, condition, step = command.expressions
        self._expander.number(first)
        self._status = 0
        while not condition.strip() or self._expander.number(condition):
            self._asking.count()
            if not self._once(command.body):
                break
            self._expander.number(step)

    def _once(self, body: Program) -> bool:
        """Runs a loop's body; whether the loop goes on."""
        try:
            self._program(body)
        except _Loop as loop:
            self._status = 0
            if loop.levels > 1:
                raise _Loop(loop.levels - 1, goes_on=loop.goes_on) from None
            return loop.goes_on
        return True

    def _case(self, command: Case) -> None:
        text = self._expander.text(command.word)
        self._status = 0
        falling = False
        for patterns, body, end in command.items:
            if falling or any(matches(self._expander.pattern(each), text) for each in patterns):
                self._program(body)
                if end == ";;":
                    return
                falling = end == ";&"

    # simple commands

    def _simple(self, command: Simple) -> None:
        self._line = self._above + command.line
        self._asking.pipes = {}
        self._substituted = None
        name = command.words[0] if command.words else ""
        self._refuse(name, command)
        if self.state.before.document["shell_options"].get("expand_aliases"):
            raise Abstained("aliases are expanded")
        for word in command.words:
            if references(word).names & _UNKNOWN - {"_"}:
                raise Abstained(f"{word!r:.40} is beyond it")
        last = self._last_argument(command)
        try:
            self._run_simple(command, name)
        finally:
            self._last = last

    def _refuse(self, name: str, command: Simple) -> None:
        """Raises Abstained for builtins whose effects come later or on what is not told here."""
        alone = len(command.words) == 1
        if name == "trap" and not (alone or command.words[1:] in (("-p",), ("-l",))):
            raise Abstained("what a trap does is done later")
        if name == "local" and self._calls:
            raise Abstained("variables of functions are beyond it")
        if name in ("wait", "jobs", "fg", "bg", "disown") and self._has_jobs:
            if name != "wait" or not alone:
                raise Abstained(f"{name} is told the numbers of jobs")
            self._racing = False

    def _last_argument(self, command: Simple) -> str | None:
        """What `$_` will be, where anything asks for it; None where nobody knows."""
        if not command.words or "_" not in self._input or self._is_unknown(command.words[-1]):
            return None
        fields = self._expander.fields(command.words[-1])
        return fields[-1] if fields else None

    def _run_simple(self, command: Simple, name: str) -> None:
        if self._touches(command):
            self._put(self._text(command, whole=True), name, self._fds, self._stdin)
            return
        values = None
        if self._is_ruled(command, name):
            values = [field for word in command.words for field in self._expander.fields(word)]
            text = ""
        else:
            text = self._text(command)
        if values is None and not text:
            self._assignments(command)
        pipes = self._asking.pipes
        opened = self._open_all(command.redirects)
        self._asking.pipes = {**pipes, **self._asking.pipes}
        if isinstance(opened, int):
            self._status = opened
            return
        fds, stdin, kept = opened
        if values == ["exec"]:
            self._fds, self._stdin = fds, self._content(kept) if kept else stdin
            self._status = 0
        elif values is not None:
            stdin = self._content(kept) if kept else stdin
            with self._to(fds, stdin):
                self._builtin(command, values)
        elif text:
            if name in ("xargs", "find") and not kept and self._unrolled(command, fds, stdin):
                return
            if text == "cd -" and self._left is not None:
                self._go_back(fds, stdin)
                return
            final = id(command) == self._final
            forgotten = self._forgotten(command) if name == "unset" and self._functions else ()
            self._put(" ".join([text, *kept]), name, fds, stdin, final=final)
            for each in forgotten:
                self._functions.pop(each, None)

    def _go_back(self, fds: Mapping[int, Sink], stdin: Stdin) -> None:
        """`cd -`: to where the shell was before, which it says."""
        place = self._left or ""
        self._put(f"cd {quoted(place)}", "cd", fds, stdin)
        if not self._status:
            self._write(fds[1], os.fsencode(f"{place}\n"))

    def _forgotten(self, command: Simple) -> list[str]:
        """Functions that an `unset` takes back: those behind `-f`, and those that no variable is
        called like.
        """
        if any(map(self._is_unknown, command.words)):
            raise Abstained("nobody knows which function is unset")
        words = [field for word in command.words[1:] for field in self._expander.fields(word)]
        options = [word for word in words if word.startswith("-")]
        names = [word for word in words if not word.startswith("-")]
        if options:
            return names if all(set(each) <= set("-f") for each in options) else []
        document = self.state.before.document
        variables = document["env"].keys() | document["settings"].keys()
        return [name for name in names if name not in variables]

    def _is_ruled(self, command: Simple, name: str) -> bool:
        if name in self._functions or name in _ENDING or name in ("eval", "shift", "read"):
            return True
        return name == "set" and "--" in command.words

    def _assignments(self, command: Simple) -> None:
        for assignment in command.assignments:
            match = _ASSIGNMENT.fullmatch(assignment)
            if match is None:
                raise Abstained(f"{assignment!r:.40} is beyond it")
            name, adds, _ = match.groups()
            value = self._expander.text(match[3], assigned=True)
            if adds and self._has_attributes(name):  # to a number it is added
                self._assign(name, f"{name}+={quoted(value)}", None)
                continue
            self.assign(name, (self.variable(name) or "") + value if adds else value)
        self._status = self._substituted or 0

    def _text(self, command: Simple, *, whole: bool = False) -> str:
        """The command as it is asked about: as it is written, but for what this run alone knows."""
        parts: list[str] = []
        for assignment in command.assignments if command.words else ():
            match = _ASSIGNMENT.fullmatch(assignment)
            if self._is_ours(assignment) and match and not match[2]:
                value = self._expander.text(match[3], assigned=True)
                assignment = f"{match[1]}={quoted(value)}"
            parts.append(assignment)
        named = False
        # words are expanded before a redirection makes its file
        opens = self._opened or any(">" in redirect.operator for redirect in command.redirects)
        for word in command.words:
            match = _ASSIGNMENT.fullmatch(word) if command.words[0] in _DECLARING else None
            if match and self._is_ours(word):
                value = self._expander.text(match[3], assigned=True)
                parts.append(f"{match[1]}{match[2]}={quoted(value)}")
            elif self._is_ours(word) or (opens and self._matches(word)):
                for value in self._expander.fields(word):
                    parts.append(quoted(value, command=not named))
                    named = True
            else:
                parts.append(word)
                named = True
        for redirect in command.redirects if whole else ():
            parts.append(_as_text(redirect, redirect.target))
        return " ".join(parts) if named else ""

    def _matches(self, word: str) -> bool:
        """Whether a word is a pattern of path names."""
        if not SPECIAL & set(word) or self._is_unknown(word):
            return False
        return any(is_pattern(self._expander.pattern(one)) for one in braces(word))

    def _is_ours(self, word: str) -> bool:
        """Whether a word stands for something that only this run knows."""
        found = references(word)
        if found.substitutes:
            return True
        known = self._asking.set_here | {"?", "_", "BASH_SUBSHELL", "LINENO", "PIPESTATUS"}
        if self.arguments or self._calls:
            known |= {"@", "*", "#", *"123456789"}
        if not found.names & known:
            return False
        try:
            if "$((" in word and re.search(r"\+\+|--|[^=!<>]=[^=]", word):
                raise Abstained("an assignment in an expression")
            for one in braces(word):
                self._expander.fields(one)
        except Abstained:
            return bool(found.names & {"?", "_", "PIPESTATUS", "@", "*", "#", *"123456789"})
        return True

    def _put(
        self,
        text: str,
        name: str,
        fds: Mapping[int, Sink],
        stdin: Stdin,
        *,
        final: bool = False,
    ) -> None:
        """Asks about a command, and puts what it prints and changes where it belongs."""
        separate = fds[1] is not fds[2]
        data = stdin.data if name not in _READ_NOTHING and not _reads_a_file(text) else b""
        piped = stdin.piped and name not in _READ_NOTHING and not _reads_a_file(text)
        behavior = self._ask(text, stdin=data, separate=separate, piped=piped, final=final)
        if stdin.endless and data:
            half = self._ask(text, stdin=data[: len(data) // 2], separate=separate)
            if _said(half) != _said(behavior):
                raise Abstained("more comes through a pipe than is known")
        if stdin.shared and (data or stdin.perhaps) and name not in _READ_NOTHING:
            self._consume(text, stdin, behavior, separate=separate)
        self._asking.know(behavior.stdout if separate and behavior.stdout else behavior.output)
        self._asking.know(data)
        self._asking.learn(text, behavior)
        again = _made_again(behavior.patch) if name == "mktemp" else None
        self._advance(again or (fed(text, data) if data else text), behavior)
        for sink in set(fds.values()):
            if isinstance(sink, OpenFile) and sink.name is not None:
                self._check_own(sink.name, behavior)
        with self._to(fds, stdin):
            truncated = behavior.output_truncated
            if separate:
                self._write(fds[1], behavior.stdout, endless=truncated)
                self._write(fds[2], behavior.stderr)
            else:
                self._write(fds[1], behavior.output, endless=truncated)
        self._status = behavior.exit_code
        if behavior.timed_out or behavior.died_by_signal:
            raise _Over(behavior)

    def _unrolled(self, command: Simple, fds: Mapping[int, Sink], stdin: Stdin) -> bool:
        """Whether what `xargs` or `find -exec` runs was asked about, one by one. Where one of these
        commands goes wrong in a way that its caller tells, nothing was.
        """
        if command.assignments or any(map(self._is_unknown, command.words)):
            return False
        words = [field for word in command.words for field in self._expander.fields(word)]
        if words[0] == "find":
            search = found(words)
            listed = self._listed(search) if search else None
            calls = search.calls(listed[0]) if search and listed else None
        else:
            search, listed = None, None
            calls = None if stdin.shared or stdin.endless else arguments_passed(words, stdin.data)
        if calls is None:
            return False
        mark = self._asking.mark()
        behaviors = self._called(calls, separate=fds[1] is not fds[2])
        if behaviors is not None and search and listed and not self._finds_no_more(search, listed):
            behaviors = None
        if behaviors is None:
            self._asking.back_to(mark)
            return False
        with self._to(fds, stdin):
            for behavior in behaviors:
                if fds[1] is fds[2]:
                    self._write(fds[1], behavior.output)
                else:
                    self._write(fds[1], behavior.stdout)
                    self._write(fds[2], behavior.stderr)
        failed = any(behavior.exit_code for behavior in behaviors)
        if search is None:
            self._status = 123 if failed else 0
        else:
            self._status = int(failed and search.together)
        return True

    def _called(self, calls: Sequence[Sequence[str]], *, separate: bool) -> list[Behavior] | None:
        behaviors = []
        for call in calls:
            text = " ".join(quoted(word, command=not place) for place, word in enumerate(call))
            behavior = self._ask(text, separate=separate)
            if behavior.exit_code > 125 or behavior.timed_out or behavior.output_truncated:
                return None
            self._asking.learn(text, behavior)
            self._advance(text, behavior)
            behaviors.append(behavior)
        return behaviors

    def _listed(self, search: Found) -> tuple[bytes, frozenset[bytes]] | None:
        """What a `find` finds; None where it complains."""
        text = " ".join(map(quoted, search.listing))
        behavior = self._ask(text, separate=True)
        if behavior.exit_code or behavior.stderr or behavior.output_truncated:
            return None
        data = behavior.stdout or b""
        return data, frozenset(data.split(b"\0"))

    def _finds_no_more(self, search: Found, listed: tuple[bytes, frozenset[bytes]]) -> bool:
        """Whether what was run changed nothing of what there is to be found, but for files that
        are gone.
        """
        directories = [
            name
            for name in listed[1]
            if name and (entry := self._start.entry(os.fsdecode(name))) and entry.perms[0] == "d"
        ]
        if any(self.state.entry(os.fsdecode(name)) is None for name in directories):
            return False
        now = self._listed(search)
        return now is not None and now[1] <= listed[1]

    def _check_own(self, name: str, behavior: Behavior) -> None:
        """Refuses a command that changes the very file its output goes to."""
        for operation in behavior.patch.operations:
            area, *names = keys(operation[1]) or [""]
            if area != "fs" or names[:1] != [name] or operation[0] == "r":
                continue
            if names[1:] not in _OF_ACCESS:
                raise Abstained("a command changes the file that its output goes to")

    def _consume(self, text: str, stdin: Stdin, behavior: Behavior, *, separate: bool) -> None:
        """Settles what of a shared input is left: all, nothing, or nobody knows."""
        data = stdin.data or stdin.perhaps
        fuller = behavior if stdin.data else self._ask(text, stdin=data, separate=separate)
        empty = self._ask(text, separate=separate) if stdin.data else behavior
        if _said(fuller) == _said(empty):
            return
        if not stdin.data:
            raise Abstained("nobody knows how much of their input commands left to each other")
        if stdin.seekable or len(stdin.data) > _BLOCK:
            # who is told by more at its end has read up to there
            more = self._ask(text, stdin=stdin.data + b"0 ~\n", separate=separate)
            if _said(more) == _said(behavior):
                stdin.perhaps = stdin.data
        stdin.data = b""

    # redirections

    def _open_all(
        self, redirects: Sequence[Redirect]
    ) -> tuple[dict[int, Sink], Stdin, list[str]] | int:
        """Where output goes and input comes from, and the redirections that stay with the command;
        the status where one fails.
        """
        fds, stdin = dict(self._fds), self._stdin
        kept: list[str] = []
        for redirect in redirects:
            operator, descriptor = redirect.operator, redirect.descriptor
            if operator in ("<<", "<<<"):
                if descriptor not in (None, 0):
                    raise Abstained("a here-document on another descriptor")
                stdin = Stdin(self._document(redirect), shared=self._stdin.shared)
                kept = [each for each in kept if not each.startswith("< ")]
            elif operator in ("<&", ">&") and redirect.target == "-":
                number = (0 if operator == "<&" else 1) if descriptor is None else descriptor
                kept.append(_as_text(redirect, "-"))
                if number:
                    fds[number] = Nowhere()
            elif operator == ">&" and redirect.target.isdigit():
                source = int(redirect.target)
                if source not in fds:
                    return self._refused(f": {_as_text(redirect, redirect.target)}", fds)
                fds[1 if descriptor is None else descriptor] = fds[source]
            elif operator == "<" and descriptor in (None, 0):
                if redirect.target.startswith("<("):
                    stdin = Stdin(self._captured(redirect.target[2:-1]), shared=True)
                    continue
                word = redirect.target
                if self._is_ours(word):
                    fields = self._expander.fields(word)
                    if len(fields) != 1:
                        return self._ambiguous(word, fds)
                    word = quoted(fields[0])
                if not self._is_readable(word):
                    status = self._refused(f": < {word}", fds)
                    if status:
                        return status
                stdin = Stdin(b"", piped=False)
                kept = [each for each in kept if not each.startswith("< ")] + [f"< {word}"]
            elif operator in (">", ">>", ">|", "&>", "&>>") or (
                operator == ">&" and descriptor is None
            ):
                early = self._opened.get(id(redirect))
                sink = self._open(redirect, fds) if early is None else early
                if isinstance(sink, int):
                    return sink
                both = operator.startswith("&") or operator == ">&"
                fds[1 if descriptor is None else descriptor] = sink
                if both:
                    fds[2] = sink
            else:
                raise Abstained(f"the redirection {operator} is beyond it")
        return fds, stdin, kept

    def _document(self, redirect: Redirect) -> bytes:
        if redirect.operator == "<<<":
            return os.fsencode(self._expander.text(redirect.target) + "\n")
        text = redirect.target if redirect.quoted else self._expander.document(redirect.target)
        return os.fsencode(text)

    def _ambiguous(self, word: str, fds: Mapping[int, Sink]) -> int:
        """What Bash says of a target that stands for several words, or for none."""
        if references(word).substitutes:
            raise Abstained("a redirection whose substitution is not one word")
        where = "environment" if self._calls else "bash"
        message = f"{where}: line {self._line}: {word}: ambiguous redirect\n"
        self._write(fds[2], os.fsencode(message))
        return 1

    def _is_readable(self, word: str) -> bool:
        if references(word).names or any(mark in word for mark in "*?[{"):
            return False
        path = self._expander.text(word)
        entry = self.state.entry(path)
        return entry is not None and entry.perms.startswith("-")

    def _refused(self, text: str, fds: Mapping[int, Sink]) -> int:
        """What the shell says where it cannot open something; its status."""
        behavior = self._ask(text)
        self._advance(text, behavior)
        self._write(fds[2], behavior.output)
        return behavior.exit_code

    def _open(self, redirect: Redirect, fds: Mapping[int, Sink]) -> Sink | int:
        fields = self._expander.fields(redirect.target)
        if len(fields) != 1:
            return self._ambiguous(redirect.target, fds)
        path = fields[0]
        if path == "/dev/null":
            return Nowhere()
        if path in ("/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2"):
            return fds[1 if path.endswith(("out", "1")) else 2]
        word = quoted(path) if self._is_ours(redirect.target) else redirect.target
        entry = self.state.entry(path) if path else None
        if entry is not None and entry.perms[0] not in "-d":
            raise Abstained(f"{path} is no regular file")
        whole = self.state.resolve(path) if path else ""
        name = file_key(os.fsencode(whole), os.fsencode(self.state.cwd))
        operator = ">>" if redirect.operator.endswith(">>") else redirect.operator[-1:]
        operator = ">|" if redirect.operator == ">|" else operator
        operator = ">" if operator == "&" else operator
        text = f": {operator} {word}"
        behavior = self._ask(text)
        self._asking.know(b"")
        self._advance(text, behavior)
        if behavior.exit_code:
            self._write(fds[2], behavior.output)
            return behavior.exit_code
        appends = operator == ">>"
        return OpenFile(whole, name, fresh=not appends or entry is None, appends=appends)

    def _touches(self, command: Simple) -> bool:
        """Whether a command is given the file that its output is appended to, which programs tell
        and refuse.
        """
        for redirect in command.redirects:
            if redirect.operator not in (">", ">>", "&>>"):
                continue
            if references(redirect.target).substitutes or redirect.target in self._asking.pipes:
                continue
            searching = command.words[:1] in (("grep",), ("egrep",), ("fgrep",), ("rgrep",))
            if not redirect.operator.endswith(">>") and not searching:
                continue
            targets = self._expander.fields(redirect.target)
            if len(targets) != 1 or self.state.entry(targets[0]) is None:
                continue
            whole = self.state.resolve(targets[0])
            for word in command.words[1:]:
                if self._is_unknown(word):
                    continue
                for value in self._expander.fields(word):
                    path = self.state.resolve(value)
                    if path == whole or (searching and whole.startswith(path.rstrip("/") + "/")):
                        return True
        return False

    def _is_unknown(self, word: str) -> bool:
        found = references(word)
        return found.substitutes or not all(name.isidentifier() for name in found.names)

    # builtins that steer

    def _builtin(self, command: Simple, values: list[str]) -> None:
        name, *rest = values
        if name in self._functions:
            self._call(name, rest)
        elif name == "eval":
            self._inside(read_program(" ".join(rest)))
        elif name == "exec":
            self._exec(values)
        elif name in ("break", "continue"):
            self._leave_loop(name, rest)
        elif name == "read":
            self._read(command, rest)
        elif name in ("set", "shift"):
            self._shift(values)
        else:
            self._end(name, values)

    def _call(self, name: str, arguments: list[str]) -> None:
        if self._calls > 20:
            raise Abstained(f"{name} calls itself too often")
        saved, self.arguments = self.arguments, tuple(arguments)
        self._calls += 1
        try:
            with self._on_line(self._functions[name].line):
                self._command(self._functions[name].body)
        except _Return as returned:
            self._status = returned.status
        finally:
            self._calls -= 1
            self.arguments = saved

    def _exec(self, values: list[str]) -> None:
        if len(values) < 2 or values[1].startswith("-"):
            raise Abstained("exec with options")
        self._put(" ".join(map(quoted, values)), "exec", self._fds, self._stdin)
        raise _Exit(self._status)

    def _leave_loop(self, name: str, rest: list[str]) -> None:
        if len(rest) > 1 or (rest and not (rest[0].isdigit() and int(rest[0]))):
            raise Abstained(f"{name} {' '.join(rest):.20} is beyond it")
        raise _Loop(int(rest[0]) if rest else 1, goes_on=name == "continue")

    def _end(self, name: str, values: list[str]) -> None:
        if len(values) > 2 or (len(values) == 2 and not re.fullmatch(r"-?\d{1,18}", values[1])):
            if name == "return":
                raise Abstained("this return is beyond it")
            self._put(" ".join(map(quoted, values)), name, self._fds, self._stdin)
            if len(values) > 2 and re.fullmatch(r"-?\d{1,18}", values[1]):
                return
            raise _Exit(self._status)
        status = int(values[1]) & 255 if len(values) == 2 else self._status
        if name == "return":
            if not self._calls:
                raise Abstained("return outside of a function")
            raise _Return(status)
        raise _Exit(status)

    def _shift(self, values: list[str]) -> None:
        """`set -- word…` and `shift n`: positional parameters are known here alone."""
        name, *rest = values
        if name == "set":
            if rest[0] != "--":
                raise Abstained("set with options and parameters")
            self.arguments, self._status = tuple(rest[1:]), 0
            return
        if len(rest) > 1 or not "".join(rest or "1").isdigit():
            raise Abstained("shift by what is no number")
        count = int(rest[0]) if rest else 1
        self._status = int(count > len(self.arguments))
        if not self._status:
            self.arguments = self.arguments[count:]

    def _read(self, command: Simple, rest: list[str]) -> None:
        """`read`: the next line, its words to variables."""
        raw = "-r" in rest
        names = [each for each in rest if each != "-r"]
        ifs = self.variable("IFS")
        for assignment in command.assignments:
            if not assignment.startswith("IFS="):
                raise Abstained("read with another assignment before it")
            ifs = self._expander.text(assignment[4:])
        if not all(name.isidentifier() for name in names) or self._stdin.perhaps:
            raise Abstained("read with options, or from an input that others read")
        line, newline, left = self._stdin.data.partition(b"\n")
        if line.endswith(b"\\") or b"\0" in line or self._stdin.endless:
            raise Abstained("read from a line that goes on, or has NUL bytes")
        self._stdin.data = left
        if b"\\" in line and not raw:
            text = " ".join((*command.assignments, "read", *names))
            behavior = self._ask(text, stdin=line + newline)
            self._advance(fed(text, line + newline), behavior)
            self._status = behavior.exit_code
            return
        if not names:
            values, names = [os.fsdecode(line)], ["REPLY"]
        else:
            values = _split(os.fsdecode(line), " \t\n" if ifs is None else ifs, len(names))
        for name, value in zip(names, values, strict=True):
            self.assign(name, value)
        self._status = int(not newline)


def _replacing(program: Program) -> int:
    """Which command Bash becomes instead of waiting for it: the input's last one, where it is a
    simple command of its own (its `id`; 0 for none).
    """
    last = program[-1].pipelines[-1][1] if program else None
    if last is None or program[-1].background or last.negated or len(last.stages) > 1:
        return 0
    command = last.stages[0]
    return id(command) if isinstance(command, Simple) and not command.redirects else 0


def stage_of(command: Command) -> Command:
    """The command under its redirections."""
    return stage_of(command.command) if isinstance(command, Redirected) else command


def _beside(stages: Sequence[Command]) -> str:
    """The other stages of a pipeline that begins with a list of processes, as they are seen in it;
    "" for any other pipeline.
    """
    simple = [stage for stage in stages if isinstance(stage, Simple)]
    if len(simple) != len(stages) or len(simple) < 2 or simple[0].words[:1] not in _LISTING:
        return ""
    words = [word for stage in simple[1:] for word in (*stage.assignments, *stage.words)]
    if any(references(word).substitutes for word in words):
        return ""
    others = " | ".join(" ".join((*stage.assignments, *stage.words)) for stage in simple[1:])
    return f"{others} >/dev/null 2>&1"


def _merged(stage: Command) -> Command:
    """A stage whose standard error goes into the pipe as well."""
    both = Redirect(2, ">&", "1")
    if isinstance(stage, Simple):
        return replace(stage, redirects=(*stage.redirects, both))
    if isinstance(stage, Redirected):
        return replace(stage, redirects=(*stage.redirects, both))
    return Redirected(stage, (both,))


def _read_files(program: Program) -> Program:
    """`$(< file)` as `cat < file`."""
    pipelines = [pipeline for job in program for _, pipeline in job.pipelines]
    command = pipelines[0].stages[0] if pipelines else None
    if len(pipelines) != 1 or not isinstance(command, Simple) or command.words:
        return program
    if [redirect.operator for redirect in command.redirects] != ["<"]:
        return program
    cat = replace(pipelines[0], stages=(replace(command, words=("cat",)),))
    return (replace(program[0], pipelines=(("", cat),)),)


def _as_text(redirect: Redirect, word: str) -> str:
    number = "" if redirect.descriptor is None else str(redirect.descriptor)
    space = "" if redirect.operator.endswith("&") and redirect.operator[0] in "<>" else " "
    return f"{number}{redirect.operator}{space}{word}"


def _made_again(patch: ContextPatch) -> str | None:
    """The commands that make what `mktemp` made, which itself would choose another name."""
    made = []
    for code, path, *entry in patch.operations:
        area, *names = keys(path)
        if code != "a" or area != "fs" or len(names) != 1:
            return None
        file = quoted(os.fsdecode(name_bytes(names[0])))
        directory = entry[0]["perms"].startswith("d")
        made.append(f"mkdir -m 700 {file}" if directory else f"(umask 077; : > {file})")
    return "; ".join(made) or None


def _reads_a_file(text: str) -> bool:
    return re.search(r" < \S+$| 0?<&-$", text) is not None


def _said(behavior: Behavior) -> tuple[object, ...]:
    return behavior.exit_code, behavior.output, behavior.stdout, behavior.stderr, behavior.patch


def _split(line: str, ifs: str, count: int) -> list[str]:
    """The line's words as `read` gives them to so many variables, the last one the rest."""
    blanks = "".join(each for each in ifs if each in " \t\n")
    others = "".join(each for each in ifs if each not in " \t\n")
    blank = f"[{re.escape(blanks)}]" if blanks else "(?!)"
    separator = f"{blank}*[{re.escape(others)}]{blank}*" if others else "(?!)"
    pattern = re.compile(f"{separator}|{blank}+")
    rest = line.strip(blanks)
    values: list[str] = []
    while len(values) < count - 1:
        match = pattern.search(rest) if ifs else None
        if match is None:
            values.append(rest)
            rest = ""
            continue
        values.append(rest[: match.start()])
        rest = rest[match.end() :]
    # one separator at the very end belongs to the last word's end
    match = pattern.search(rest) if others else None
    if match is not None and match.end() == len(rest):
        rest = rest[: match.start()]
    return [*values, rest]
