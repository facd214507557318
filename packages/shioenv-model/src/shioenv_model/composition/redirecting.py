"""Redirections of a command's output and input."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shioenv.bash.builtins import BUILTINS
from shioenv.bash.program import Command, Redirect, Redirected, Simple
from shioenv.bash.words import quoted
from shioenv.domain.names import file_key
from shioenv.errors import Abstained
from shioenv_model.bash.arithmetic import Complaint, count
from shioenv_model.bash.unexpanded import references
from shioenv_model.composition.call import Call, as_text
from shioenv_model.composition.environment import Environment
from shioenv_model.composition.frames import Nowhere, OpenFile, Sink, Stdin


@dataclass(frozen=True, slots=True)
class Opened:
    """The result of a command's redirections."""

    fds: dict[int, Sink]
    """The command's output sinks, by descriptor."""
    stdin: Stdin
    """The command's standard input."""
    reads: str | None = None
    """The word after `<`: the file that the command reads. It remains part of the command."""
    closed: tuple[str, ...] = ()
    """Redirections that close a descriptor, unexpanded. They remain part of the command."""


class Redirections:
    """Opens the redirections of commands in an environment."""

    def __init__(self, here: Environment) -> None:
        self._here = here
        self.opened: dict[int, Sink | int] = {}
        """Sinks that were opened before their command runs, or the status of a failed open.

        The keys are the `id`s of the redirections.
        """

    def open_early(self, stage: Command) -> None:
        """Open the output files of a later pipeline stage, before any program starts."""
        redirects = stage.redirects if isinstance(stage, Simple | Redirected) else ()
        for redirect in redirects:
            if redirect.operator not in (">", ">>", ">|", "&>", "&>>"):
                return
            if references(redirect.target).substitutes:
                return
            if isinstance(stage, Simple) and self.touches(stage):
                return
            # a failed open is reported before the stage's streams are redirected
            self.opened[id(redirect)] = self._open(redirect, self._here.streams.fds)

    def open_all(self, redirects: Sequence[Redirect]) -> Opened | int:
        """Apply the redirections; return the exit status if one fails."""
        fds, stdin = dict(self._here.streams.fds), self._here.streams.stdin
        reads: str | None = None
        closed: list[str] = []
        for redirect in redirects:
            operator, descriptor = redirect.operator, redirect.descriptor
            if isinstance(descriptor, str):
                raise Abstained("a descriptor in a variable is not supported")
            if operator in ("<<", "<<<"):
                if descriptor not in (None, 0):
                    raise Abstained("a here-document on another descriptor")
                stdin = Stdin(self._document(redirect), shared=self._here.streams.stdin.shared)
                reads = None
            elif operator in ("<&", ">&") and redirect.target == "-":
                number = (0 if operator == "<&" else 1) if descriptor is None else descriptor
                closed.append(as_text(redirect, "-"))
                if number:
                    fds[number] = Nowhere()
            elif operator == ">&" and redirect.target.isdigit():
                source = count(redirect.target)
                if source not in fds:
                    said = f"{self._here.message_prefix()}{redirect.target}: Bad file descriptor\n"
                    self._here.write(fds[2], os.fsencode(said))
                    return 1
                fds[1 if descriptor is None else descriptor] = fds[source]
            elif operator == "<" and descriptor in (None, 0):
                if redirect.target.startswith("<("):
                    stdin = Stdin(self._here.captured(redirect.target[2:-1]), shared=True)
                    continue
                word = redirect.target
                if self._here.is_ours(word):
                    fields = self._here.expander.fields(word)
                    if len(fields) != 1:
                        return self._ambiguous(word, fds)
                    word = quoted(fields[0])
                if not self._is_readable(word):
                    refused = Call(":", opens=Redirect(None, "<", word))
                    status = self._refused(refused, fds)
                    if status:
                        return status
                stdin = Stdin(b"", piped=False)
                reads = word
            elif operator in (">", ">>", ">|", "&>", "&>>") or (
                operator == ">&" and descriptor is None
            ):
                early = self.opened.get(id(redirect))
                sink = self._open(redirect, fds) if early is None else early
                if isinstance(sink, int):
                    return sink
                both = operator.startswith("&") or operator == ">&"
                fds[1 if descriptor is None else descriptor] = sink
                if both:
                    fds[2] = sink
            else:
                raise Abstained(f"the redirection {operator} is not supported")
        return Opened(fds, stdin, reads, tuple(closed))

    def content(self, opened: Opened) -> Stdin:
        """Return the standard input of several commands that share these redirections."""
        if opened.closed:
            raise Abstained("these redirections of several commands are not supported")
        if opened.reads is None:
            return opened.stdin
        behavior = self._here.ask(Call("cat", opened.reads), separate=True)
        if behavior.output_truncated:
            raise Abstained("more is read from a file than is known")
        return Stdin(behavior.stdout or b"", shared=True, seekable=True)

    def _document(self, redirect: Redirect) -> bytes:
        if redirect.operator == "<<<":
            return os.fsencode(self._here.expander.text(redirect.target) + "\n")
        try:
            text = redirect.target
            text = text if redirect.quoted else self._here.expander.document(text)
        except Complaint:
            raise Abstained("an expansion in a here-document fails") from None
        return os.fsencode(text)

    def _ambiguous(self, word: str, fds: Mapping[int, Sink]) -> int:
        """Write Bash's error for a target that expands to several words, or to none; return 1."""
        if references(word).substitutes:
            raise Abstained("a redirection whose substitution is not one word")
        message = f"{self._here.message_prefix()}{word}: ambiguous redirect\n"
        self._here.write(fds[2], os.fsencode(message))
        return 1

    def _is_readable(self, word: str) -> bool:
        if references(word).names or any(mark in word for mark in "*?[{"):
            return False
        path = self._here.expander.text(word)
        entry = self._here.state.entry(path)
        return entry is not None and entry.perms.startswith("-")

    def _refused(self, call: Call, fds: Mapping[int, Sink]) -> int:
        """Write the shell's error for a file that cannot be opened. Return the exit status."""
        behavior = self._here.ask(call)
        self._here.advance(call.text, behavior)
        self._here.write(fds[2], behavior.output)
        return behavior.exit_code

    def _open(self, redirect: Redirect, fds: Mapping[int, Sink]) -> Sink | int:
        fields = self._here.expander.fields(redirect.target)
        if len(fields) != 1:
            return self._ambiguous(redirect.target, fds)
        path = fields[0]
        if redirect.operator == ">&" and path.isdigit():
            raise Abstained("a descriptor that is the result of an expansion")
        if path == "/dev/null":
            return Nowhere()
        if path in ("/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2"):
            return fds[1 if path.endswith(("out", "1")) else 2]
        word = quoted(path) if self._here.is_ours(redirect.target) else redirect.target
        entry = self._here.state.entry(path) if path else None
        if entry is not None and entry.perms[0] not in "-d":
            raise Abstained(f"{path} is not a regular file")
        whole = self._here.state.resolve(path) if path else ""
        name = file_key(os.fsencode(whole), os.fsencode(self._here.state.cwd))
        operator = ">>" if redirect.operator.endswith(">>") else redirect.operator[-1:]
        operator = ">|" if redirect.operator == ">|" else operator
        operator = ">" if operator == "&" else operator
        call = Call(":", opens=Redirect(None, operator, word))
        behavior = self._here.ask(call)
        self._here.asking.know(b"")
        self._here.advance(call.text, behavior)
        if behavior.exit_code:
            self._here.write(fds[2], behavior.output)
            return behavior.exit_code
        appends = operator == ">>"
        return OpenFile(whole, name, fresh=not appends or entry is None, appends=appends)

    def touches(self, command: Simple) -> bool:
        """Whether a command reads the file to which its output is appended.

        Programs detect this and reject the file. `grep` also rejects a file that it overwrites, and
        one in a directory that it searches. Builtins do not detect it.
        """
        if command.words and command.words[0] in BUILTINS:
            return False
        for redirect in command.redirects:
            if redirect.operator not in (">", ">>", "&>>"):
                continue
            if (
                references(redirect.target).substitutes
                or redirect.target in self._here.asking.pipes
            ):
                continue
            searching = command.words[:1] in (("grep",), ("egrep",), ("fgrep",), ("rgrep",))
            if not redirect.operator.endswith(">>") and not searching:
                continue
            targets = self._here.expander.fields(redirect.target)
            if len(targets) != 1 or self._here.state.entry(targets[0]) is None:
                continue
            whole = self._here.state.resolve(targets[0])
            for word in command.words[1:]:
                if self._here.is_unknown(word):
                    continue
                for value in self._here.expander.fields(word):
                    path = self._here.state.resolve(value)
                    if path == whole or (searching and whole.startswith(path.rstrip("/") + "/")):
                        return True
        return False
