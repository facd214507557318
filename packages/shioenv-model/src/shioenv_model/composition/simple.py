"""Evaluation of simple commands: queries, state, destinations of output, and `set -x`."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile

from shioenv.bash.builtins import BUILTINS, DECLARING
from shioenv.bash.program import Command, Function, Simple
from shioenv.bash.words import quoted, unquoted
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import pointer
from shioenv.domain.patch import ContextPatch
from shioenv.errors import Abstained
from shioenv_model.bash.arithmetic import Complaint
from shioenv_model.bash.arrays import quote_value
from shioenv_model.bash.definitions import command_text, definition
from shioenv_model.bash.unexpanded import references
from shioenv_model.composition import shell_builtins, stdin_builtins
from shioenv_model.composition.assigning import assign_word, declare
from shioenv_model.composition.call import Call, as_text
from shioenv_model.composition.callers import CALLING
from shioenv_model.composition.directories import STACKING, stack
from shioenv_model.composition.environment import Environment
from shioenv_model.composition.frames import Discard, Exit, Return, Stdin, Streams
from shioenv_model.composition.ruled import WITHOUT_HELP
from shioenv_model.composition.scoping import UNKNOWN
from shioenv_model.composition.script_commands import ScriptCommands
from shioenv_model.composition.scripts import SHELLS, is_script

_DECLARING = DECLARING - {"local"}
"""Builtins whose operands are assignments, and therefore not split."""

_ENDING = frozenset({"break", "continue", "return", "exit", "exec"})
_RULED = STACKING | {
    *("eval", "getopts", "let", "mapfile", "read", "readarray", "shift", "shopt", "trap", "unset"),
}
_WALKED = DECLARING | _RULED | _ENDING | {"set"}
"""Builtins that are evaluated here, by rules or because a context lacks their effect."""

CARRYING = re.compile(r"\b(?:cd|pushd|popd|dirs|set|shift|exit|exec)\b")
"""Builtins that may change the state that a shell carries to the next input (`Carried`)."""
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.ASCII | re.DOTALL)
_OWN = re.compile(r"\$(?:-|BASH|BASH_EXECUTION_STRING|BASH_VERSION|FUNCNAME|SECONDS)(?!\w)")
"""Matches variables that no context shows, but whose values are known."""
_PLAIN_NAME = re.compile(r"[^\\'\"$`]+")
_LETTERS = re.compile(r"-[A-Za-z]+").fullmatch


class SimpleCommands(ScriptCommands):
    """Evaluates simple commands; subclasses evaluate the constructs that contain them."""

    @abstractmethod
    def _trapped(self, name: str) -> int:
        """Run the commands of a trap, if it is set; return their status."""

    def _debug(self, command: Command) -> bool:
        """Run the trap DEBUG before a command; return whether to skip the command (`extdebug`)."""
        if not self._here.own.traps or self._trapping:
            return False
        self._here.own.command = command_text(command)
        if not self._here.place.calls or self._here.traces_functions:
            status = self._trapped("DEBUG")
            if status == 2 and self._here.is_extended and self._here.place.calls:
                raise Return(0)
            return bool(status) and self._here.is_extended
        return False

    @abstractmethod
    def _command(self, command: Command) -> None:
        """Run a command of any kind."""

    @contextmanager
    def _on_line(self, line: int) -> Iterator[None]:
        """In the block, make errors of a compound command's redirections refer to this line."""
        saved, self._end_line = self._end_line, self._above + line
        try:
            yield
        finally:
            self._end_line = saved

    def _define(self, command: Function) -> None:
        here = self._here
        here.own.functions[command.name] = command
        here.own.files[command.name] = here.place.file
        here.status = 0
        try:
            text = definition(command)
        except Abstained:
            here.advance(command.text, here.ask(Call(command.text)))
            return
        old = here.state.before.document["functions"].get(command.name)
        if old == text:
            return
        operation = ("a" if old is None else "=", pointer("functions", command.name), text)
        here.advance(command.text, Behavior(0, b"", ContextPatch((operation,))))

    def _simple(self, command: Simple) -> None:
        self._here.place.line = self._above + command.line
        self._here.asking.pipes = {}
        self._here.result.substituted = None
        with self._complaining(), self._named(command) as named:
            command, name = named
            self._perform(command, name)

    @contextmanager
    def _named(self, command: Simple) -> Iterator[tuple[Simple, str]]:
        """Yield the command, its name unquoted and expanded, and the name.

        Leading `command` and `builtin` are removed if their only effect is to bypass a function of
        that name. Inside the block, this function is then not defined.
        """
        functions = self._here.own.functions
        command, name = self._spelled(command)
        try:
            while name in ("command", "builtin") and name not in functions:
                rest, following = self._spelled(replace(command, words=command.words[1:]))
                following = unquoted(following) or "-"
                is_bare = following not in functions and (
                    name == "command" or following in BUILTINS
                )
                if following.startswith("-") or not (is_bare or following in _WALKED):
                    break
                command, name = rest, following
                if following in DECLARING:
                    command = self._split(command)
                self._here.own.functions = {
                    each: one for each, one in functions.items() if each != name
                }
            yield command, name
        finally:
            if self._here.own.functions is not functions and name not in self._here.own.functions:
                hidden = {name: functions[name]} if name in functions else {}
                self._here.own.functions = {**self._here.own.functions, **hidden}

    def _spelled(self, command: Simple) -> tuple[Simple, str]:
        """Return the command and its name, without quotes and expansions if the result is known."""
        word = command.words[0] if command.words else ""
        if not word or word[0] == "~" or _PLAIN_NAME.fullmatch(word):
            return command, word
        if references(word).substitutes or self._here.changes(word):
            return command, word
        try:
            fields = self._here.expander.fields(word)
        except Abstained:
            return command, word
        if not fields:
            rest = command.words[1:]
            return replace(command, words=rest), rest[0] if rest else ""
        known = _WALKED | SHELLS | {"builtin", "command"} | self._here.own.functions.keys()
        if fields[0] not in known - self._aliases.keys():
            return command, word
        command = replace(command, words=(*map(quoted, fields), *command.words[1:]))
        return self._split(command) if fields[0] in DECLARING else command, fields[0]

    def _alias(self, command: Simple, name: str) -> None:
        """Run a command whose name is an alias. Errors: Abstained for a here-document."""
        if any(redirect.operator.startswith("<<") for redirect in command.redirects):
            raise Abstained("an alias with a here-document")
        words = [self._aliases[name], *command.words[1:]]
        place = 0
        while place + 1 < len(words) and words[place].endswith((" ", "\t")):
            place += 1
            words[place] = self._aliases.get(words[place], words[place])
        redirects = (as_text(each, each.target) for each in command.redirects)
        text = " ".join((*command.assignments, *words, *redirects))
        self._expanding = {*self._expanding, name}
        try:
            self._inside(self._here.program(text))
        finally:
            self._expanding = self._expanding - {name}

    def _know_aliases(self) -> None:
        """Use the present aliases from now on: Bash expands aliases when it reads a line."""
        document = self._here.state.before.document
        is_on = document["shell_options"].get("expand_aliases")
        self._aliases = dict(document["aliases"]) if is_on else {}

    def _split(self, command: Simple) -> Simple:
        """Return the command with expanded words; assignments among the operands are split too."""
        fields = [field for word in command.words for field in self._here.expander.fields(word)]
        return replace(command, words=tuple(map(quoted, fields)))

    def _perform(self, command: Simple, name: str) -> None:
        self._refuse(name, command)
        if self._debug(command):
            self._here.status = 0
            return
        if name in self._aliases and name == command.words[0] and name not in self._expanding:
            self._alias(command, name)
            return
        for word in command.words:
            if references(word).names & UNKNOWN - {"_", "!"}:
                raise Abstained(f"{word!r:.40} is not supported")
        last = self._last_argument(command)
        if name == "wait" and self._has_jobs and name not in self._here.own.functions:
            self._wait(command)
            return
        try:
            self._run_simple(command, name)
        finally:
            self._here.own.last = last

    def _wait(self, command: Simple) -> None:
        """Run `wait` for background jobs, which were all evaluated when they started.

        Errors: Abstained for job numbers.
        """
        words = [one for word in command.words[1:] for one in self._here.expander.fields(word)]
        children = self._here.children
        if command.redirects or not set(words) <= children.keys():
            raise Abstained("wait is told the numbers of jobs")
        self._here.status = children[words[-1]] if words else 0
        self._here.racing &= bool(words) and len(set(words)) < len(children)

    @contextmanager
    def _complaining(self) -> Iterator[None]:
        """Print Bash's errors for the block, then discard what is parsed but not yet run."""
        try:
            yield
        except Complaint as wrong:
            self._here.complain(wrong.said)
            self._here.status = 1
            if wrong.ends:
                raise Exit(self._here.refused_status) from None
            if self._here.is_on("errexit") and not self._conditions:
                raise Exit(1) from None
            raise Discard from None

    def _refuse(self, name: str, command: Simple) -> None:
        """Abstain for builtins that have an effect later, or on state that is not tracked."""
        alone = len(command.words) == 1
        if name == "set" and any("r" in word for word in takewhile(_LETTERS, command.words[1:])):
            raise Abstained("a command that a restricted shell rejects")
        if name == "hash" and alone and self._here.state.history:
            raise Abstained("hash lists the programs that ran")
        if name in ("jobs", "fg", "bg", "disown", "kill", "ps") and self._has_jobs:
            raise Abstained(f"{name} with job numbers")
        if name in ("set", "declare", "typeset") and alone:
            raise Abstained(f"{name} lists all variables")
        if name == "cd" and (self._here.value_of("CDPATH") is not None):
            raise Abstained("CDPATH is set")
        if name == "compgen" and {"-F", "-C"} & {*command.words}:
            raise Abstained("compgen runs a command")

    def _last_argument(self, command: Simple) -> str | None:
        """Return `$_` after the command; None if it is unknown, or never used."""
        if (
            not command.words
            or "_" not in self._here.input
            or self._here.is_unknown(command.words[-1])
            or self._here.changes(command.words[-1])  # it must be expanded only once
        ):
            return None
        fields = self._here.expander.fields(command.words[-1])
        return fields[-1] if fields else None

    def _run_simple(self, command: Simple, name: str) -> None:
        if self._here.is_on("xtrace") and not self._here.asking.executes:
            command = trace_simple(self._here, command, name)
        if self._redirections.touches(command):
            call = Call(self._text(command, whole=True))
            self._here.put(call, name)
            return
        if name in DECLARING and name not in self._here.own.functions and self._declared(command):
            return
        if is_script(name) and name not in self._here.own.functions and self._script(command):
            return
        values = None
        if self._is_ruled(command, name):
            values = [field for word in command.words for field in self._here.expander.fields(word)]
            text = ""
        else:
            text = self._text(command)
        if values is None and not text:
            self._assignments(command)
        pipes = self._here.asking.pipes
        opened = self._redirections.open_all(command.redirects)
        self._here.asking.pipes = {**pipes, **self._here.asking.pipes}
        if isinstance(opened, int):
            self._here.status = opened
            return
        if values == ["exec"]:
            self._here.streams.stdin = self._redirections.content(opened)
            self._here.streams.fds, self._here.status = opened.fds, 0
        elif values is not None:
            with self._here.to(Streams(opened.fds, self._redirections.content(opened))):
                self._builtin(command, values)
        elif text:
            streams = Streams(opened.fds, opened.stdin)
            call = Call(text, opened.reads, opened.closed)
            if name in CALLING and not opened.closed:
                given = self._redirections.content(opened)
                given = given if opened.reads is None else Stdin(given.data)
                if self._callers.run(command, replace(streams, stdin=given)):
                    return
            back = re.fullmatch(r"(cd(?:\s+(?:-[LP]+|--))*)\s+(['\"]?)-\2", text)
            if name == "cd" and back:
                self._go_back(back[1], streams)
                return
            final = id(command) == self._final
            self._here.put(call, name, streams, final=final)

    def _declared(self, command: Simple) -> bool:
        """Declare variables by rule; return False, and change nothing, if that is impossible."""
        here = self._here
        names = {each.partition("=")[0].rstrip("+") for each in command.assignments}
        if names & {word.partition("=")[0] for word in command.words}:
            return False
        here.asking.refuse_tracing()
        mark = here.asking.mark()
        try:
            for assignment in command.assignments:  # only expanded: they end with the builtin
                here.expander.text(assignment.partition("=")[2], assigned=True)
            opened = self._redirections.open_all(command.redirects)
            if isinstance(opened, int):
                here.status = opened
                return True
            with here.to(Streams(opened.fds, opened.stdin)):
                here.status = declare(here, command.words)
        except Complaint:
            raise
        except Abstained:
            here.asking.back_to(mark)
            if command.words[0] == "local":
                raise
            return False
        return True

    def _go_back(self, cd: str, streams: Streams) -> None:
        """Run `cd -`: return to the previous directory, and print it.

        `cd` is the command without its operand.
        """
        place = self._here.variable("OLDPWD")
        if place is None:
            with self._here.to(streams):
                self._here.complain("cd: OLDPWD not set")
            self._here.status = 1
            return
        self._here.put(Call(f"{cd} {quoted(place)}"), "cd", streams)
        if not self._here.status:
            there = self._here.variable("PWD") or place
            self._here.write(streams.fds[1], os.fsencode(f"{there}\n"))

    def _is_ruled(self, command: Simple, name: str) -> bool:
        if name in self._here.own.functions or name in _ENDING or name in _RULED:
            return True
        if name == "echo" and self._here.place.is_dash:
            return True
        if name == "printf" and command.words[1:2] and command.words[1].startswith("-v"):
            return len(command.words) > 2 + (command.words[1] == "-v")
        if name in ("[", "test") and "-v" in command.words:
            return True
        return name == "set" and command.words[1:] not in ((), ("-o",), ("+o",))

    def _assignments(self, command: Simple) -> None:
        for assignment in command.assignments:
            assign_word(self._here, assignment)
        self._here.status = self._here.result.substituted or 0

    def _text(self, command: Simple, *, whole: bool = False) -> str:
        """Return the command's text. Values that only this run knows are expanded.

        The text is "" if no word remains. `whole`: with the redirections.
        """
        parts: list[str] = []
        for assignment in command.assignments if command.words else ():
            match = _ASSIGNMENT.fullmatch(assignment)
            if self._here.is_ours(assignment) and match and not match[2]:
                value = self._here.expander.text(match[3], assigned=True)
                assignment = f"{match[1]}={quoted(value)}"
            parts.append(assignment)
        named = False
        # expand words now, before a redirection creates its file
        opens = self._redirections.opened or any(
            ">" in redirect.operator for redirect in command.redirects
        )
        opens = opens or self._here.state.before.document["shell_options"].get("failglob")
        # expand a word now, before later words change a variable
        changes = any(map(self._here.changes, command.words))
        for word in command.words:
            match = _ASSIGNMENT.fullmatch(word) if command.words[0] in _DECLARING else None
            if match and self._here.is_ours(word):
                value = self._here.expander.text(match[3], assigned=True)
                parts.append(f"{match[1]}{match[2]}={quoted(value)}")
            elif (
                self._here.is_ours(word)
                or (changes and "$" in word)
                or (opens and self._here.is_matched(word))
            ):
                for value in self._here.expander.fields(word):
                    parts.append(quoted(value, command=not named))
                    named = True
            else:
                parts.append(word)
                named = True
        for redirect in command.redirects if whole else ():
            parts.append(as_text(redirect, redirect.target))
        return " ".join(parts) if named else ""

    def _builtin(self, command: Simple, values: list[str]) -> None:
        """Run a function, or a builtin that is evaluated here."""
        name, *rest = values
        if rest[:1] == ["--help"] and name not in WITHOUT_HELP | {*self._here.own.functions}:
            raise Abstained(f"the help of {name}")
        if name == "read" and name not in self._here.own.functions:
            stdin_builtins.read(self._here, command, rest)
            return
        with self._here.temporary(command.assignments):
            if name in self._here.own.functions:
                self._call(name, rest)
            elif name == "eval":
                self._evaluate(rest)
            elif name in ("break", "continue"):
                shell_builtins.leave_loop(self._here, name, rest)
            elif name in STACKING:
                stack(self._here, values)
            elif name in shell_builtins.RULES:
                shell_builtins.RULES[name](self._here, values)
            else:
                shell_builtins.end(self._here, name, values)

    def _evaluate(self, words: list[str]) -> None:
        """Run `eval`."""
        if words[:1] == ["--"]:
            words = words[1:]
        elif words and re.match("-.", words[0]):
            self._here.usage("eval", words[0], "eval [arg ...]")
            return
        self._here.status = 0
        saved = self._aliases
        self._know_aliases()
        with self._here.deeper():
            self._inside(self._here.program(" ".join(words)))
        self._aliases = saved

    def _call(self, name: str, arguments: list[str]) -> None:
        if self._here.place.calls > 20:
            raise Abstained(f"{name} calls itself too often")
        function = self._here.own.functions[name]
        file = self._here.own.files.get(name, self._here.place.file)
        place, traps = self._here.place.line, dict(self._here.own.traps)
        with self._here.function(name, arguments, file), self._counting_from(0, function.line):
            if self._here.traces_functions:
                self._trapped("DEBUG")
            else:
                self._here.own.traps.pop("RETURN", None)
            try:
                self._command(function.body)
                self._trapped("RETURN")
            except Return as returned:
                self._trapped("RETURN")
                self._here.status = returned.status
        if "RETURN" in traps:
            self._here.own.traps.setdefault("RETURN", traps["RETURN"])
        self._here.place.line = place


def is_walked(words: Sequence[str]) -> bool:
    """Whether a command must be evaluated here, not by a runner of single commands."""
    name = next((word for word in words if not _ASSIGNMENT.fullmatch(word)), "")
    if any("${" in word or "$((" in word or _OWN.search(word) for word in words):
        return True
    return name in _WALKED or is_script(name)


_META = re.compile(r"[ \t\n'\"\\|&;()<>!{}*\[\]?^$`]|^[~#]|[=:]~")
_SHOWN_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*(?:\[[^]]*\])?\+?=)(.*)", re.ASCII | re.DOTALL)


def trace(here: Environment, line: str) -> None:
    """Print a line of `set -x` after `PS4`, whose first character is repeated for each level."""
    prompt = here.variable("PS4")
    if prompt is None:
        prompt = "+ "
    status = here.status
    prompt = here.expander.document(prompt)
    here.status = status
    here.report(os.fsencode(f"{prompt[:1] * here.place.depth}{prompt}{line}\n"))


def traced_word(word: str) -> str:
    """Quote an expanded word as `set -x` shows it."""
    if _META.search(word):
        return "'" + word.replace("'", "'\\''") + "'" if word != "'" else "\\'"
    return (quote_value(word) if not word.isprintable() else word) or "''"


def trace_simple(here: Environment, command: Simple, name: str) -> Simple:
    """Trace a command; return it with its words expanded. Errors: Abstained for arrays."""
    assignments = [_expanded(here, word) for word in command.assignments]
    declares = name in DECLARING and name not in here.own.functions
    words: list[str] = []
    shown: list[str] = []
    further: list[str] = []
    for word in command.words:
        match = _SHOWN_ASSIGNMENT.fullmatch(word) if declares else None
        if match is not None:
            if match[2].startswith("("):
                raise Abstained("set -x of an array's declaration")
            value = here.expander.text(match[2], assigned=True)
            words.append(match[1] + quoted(value))
            shown.append(match[1] + value)
            further.append(match[1] + (traced_word(value) if value else ""))
        else:
            fields = here.expander.fields(word)
            words += [word] if fields == [word] else map(quoted, fields)
            shown += fields
    if words:
        trace(here, " ".join(map(traced_word, shown)))
    for line in further if name in ("export", "readonly") else ():
        trace(here, line)
    return replace(command, assignments=tuple(assignments), words=tuple(words))


def _expanded(here: Environment, word: str) -> str:
    """Trace an assignment; return it with its value expanded."""
    match = _SHOWN_ASSIGNMENT.fullmatch(word)
    if match is None or match[2].startswith("("):
        trace(here, word)
        return word
    value = here.expander.text(match[2], assigned=True)
    trace(here, match[1] + (traced_word(value) if value else ""))
    return match[1] + quoted(value)
