"""The behavior of `xargs` and `find -exec`, composed of answers for each command that they run."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shioenv.bash.builtins import BUILTINS
from shioenv.bash.program import Simple
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import FileEntry
from shioenv.domain.runner import State
from shioenv_model.bash.arithmetic import count
from shioenv_model.composition.call import Call
from shioenv_model.composition.environment import Environment
from shioenv_model.composition.frames import Streams

MOST_CALLS = 64
"""Maximum number of commands that one `xargs` or `find` may run (our choice). If it runs more, the
runner is queried about the whole command."""

_LONGEST_CALL = 100_000
"""Bytes of arguments that fit into one call: the limit of `xargs` and `find` is 128 KiB."""

CALLING = frozenset({"xargs", "find"})
"""The callers: commands that run other commands."""

_BUILTINS = BUILTINS - {"echo"} | CALLING
"""Commands that a shell would run itself, not as programs, and the callers."""

_OTHERWISE = frozenset({"-depth", "-d", "-prune", "-maxdepth", "-L", "-H", "-follow"})
"""Options with which `find` does not always descend into a directory right after visiting it."""

_PLAIN = re.compile(r"[\w./ +@%=,:-]+", re.ASCII)
"""Names that error messages show unchanged."""

_ACTIONS = re.compile(r"-(ok|okdir|exec|execdir|delete|print0?|printf|ls|fprint.*|fls|quit)")


@dataclass(frozen=True, slots=True)
class FindCall:
    """A `find` that runs a command for each file found."""

    listing: tuple[str, ...]
    """The same `find`, but it lists the files, separated by NUL bytes."""
    command: tuple[str, ...]
    """The command, with `{}` for the file."""
    together: bool
    """Whether the command ends with `+`, so that one call gets all files."""

    @property
    def descends(self) -> bool:
        """Whether `find` descends into a directory right after running the command for it."""
        return not _OTHERWISE.intersection(self.listing)

    @staticmethod
    def files(listed: bytes) -> list[str]:
        """Split a listing into files, in order."""
        return [os.fsdecode(file) for file in listed.split(b"\0") if file]

    def calls(self, listed: bytes) -> list[tuple[str, ...]] | None:
        """Return the commands for the listed files; None if unknown.

        They are unknown for more than `MOST_CALLS` commands, and if `find` may split the files into
        several calls.
        """
        files = self.files(listed)
        if not self.together:
            calls = [tuple(word.replace("{}", file) for word in self.command) for file in files]
            return calls if len(calls) <= MOST_CALLS else None
        if len(listed) > _LONGEST_CALL:
            return None
        return [(*self.command[:-1], *files)] if files else []


def parse_find(words: Sequence[str]) -> FindCall | None:
    """Parse a `find`. None unless `-exec` is its only action and its last one."""
    if "-exec" not in words or {"-o", "-or", ",", "(", "-a", "-and"} & set(words):
        return None
    place = words.index("-exec")
    before, command = words[1:place], words[place + 1 : -1]
    if any(_ACTIONS.fullmatch(word) for word in (*before, *command)) or not _is_program(command):
        return None
    if words[-1] == "+":
        if command.count("{}") != 1 or command[-1] != "{}" or len(command) < 2:
            return None
    elif words[-1] != ";" or ";" in command:
        return None
    if before[-1:] in (["!"], ["-not"]):
        return None
    listing = ("find", *before, "-print0")
    return FindCall(listing, tuple(command), together=words[-1] == "+")


def arguments_passed(words: Sequence[str], data: bytes) -> list[tuple[str, ...]] | None:
    """Return the commands that `xargs` runs for `data` on standard input; None if unknown.

    The options `-0`, `-d`, `-n`, `-I`, `-i` and `-r` are supported. Without `-0` and `-d`, the data
    must not contain quotes. There must be at most `MOST_CALLS` commands.
    """
    options = _Options()
    place = options.read(words)
    if place is None:
        return None
    command = tuple(words[place:]) or ("echo",)
    items = options.items(data)
    if items is None or not _is_program(command):
        return None
    if options.replaced:
        calls = [
            tuple(word.replace(options.replaced, item) for word in command)
            for item in items
            if item
        ]
    elif not items:
        calls = [] if options.unless_empty else [command]
    else:
        size = options.most or len(items)
        calls = [(*command, *items[i : i + size]) for i in range(0, len(items), size)]
    long = any(sum(len(word) + 1 for word in call) > _LONGEST_CALL for call in calls)
    return None if long or len(calls) > MOST_CALLS else calls


class _Options:
    """The options of an `xargs`."""

    def __init__(self) -> None:
        self.separator = b""
        self.most = 0
        self.replaced = ""
        self.unless_empty = False

    def read(self, words: Sequence[str]) -> int | None:
        """Parse options; return the index of the command, or None for an unknown option."""
        left = iter(enumerate(words))
        next(left)
        for place, word in left:
            if not word.startswith("-") or word == "-":
                return place
            if word == "--":
                return place + 1
            if not self._option(word, left):
                return None
        return len(words)

    def _option(self, word: str, left: Iterator[tuple[int, str]]) -> bool:
        if word in ("-0", "--null"):
            self.separator = b"\0"
        elif word in ("-r", "--no-run-if-empty"):
            self.unless_empty = True
        elif word in ("-i", "--replace"):
            self.replaced = "{}"
        else:
            match = re.fullmatch(r"(-[ndI]|--max-args=|--delimiter=|--replace=)(.*)", word, re.S)
            value = match[2] or next(left, (0, ""))[1] if match else ""
            if not match or not value:
                return False
            return self._valued(match[1], value)
        return True

    def _valued(self, option: str, value: str) -> bool:
        if option in ("-I", "--replace="):
            self.replaced = value
        elif option in ("-n", "--max-args="):
            self.most = count(value) or 0
            return self.most > 0
        else:
            character = {"\\n": "\n", "\\0": "\0", "\\t": "\t"}.get(value, value)
            self.separator = character.encode()
            return len(self.separator) == 1
        return not (self.replaced and self.most)

    def items(self, data: bytes) -> list[str] | None:
        """Parse the data into arguments; None if quotes or NUL bytes make them unknown."""
        if self.separator:
            parts = data.split(self.separator)
            parts = parts if parts[-1] else parts[:-1]
        elif any(mark in data for mark in (b"'", b'"', b"\\", b"\0")):
            return None
        elif self.replaced:
            parts = [line.lstrip(b" \t") for line in data.split(b"\n")]
        else:
            parts = re.split(rb"[ \t\n]+", data.strip(b" \t\n")) if data.strip(b" \t\n") else []
        if self.most and self.replaced:
            return None
        return [os.fsdecode(part) for part in parts]


def _is_program(command: Sequence[str]) -> bool:
    """Whether a shell would run the same program for this command as `xargs` and `find` do."""
    if not command or command[0] in _BUILTINS or not re.fullmatch(r"[\w./+-]+", command[0]):
        return False
    # the builtin echo and the program differ only in these options
    return command[0] != "echo" or not {"--help", "--version"} & set(command[1:2])


class Callers:
    """Queries a runner about the commands of `xargs` and `find -exec`, one by one."""

    def __init__(self, here: Environment) -> None:
        self._here = here
        self._missing = ""
        """The name of a called program that no directory of PATH holds."""

    def run(self, command: Simple, streams: Streams) -> bool:
        """Query the runner about the commands of `xargs` or `find -exec`, one by one.

        Return False if this is not possible, or if a command fails in a way that `xargs` or `find`
        reports. Then the state is unchanged, and the runner must be queried about the whole
        command.
        """
        fds, stdin = streams.fds, streams.stdin
        if command.assignments or any(map(self._here.is_unknown, command.words)):
            return False
        words = [field for word in command.words for field in self._here.expander.fields(word)]
        if words[0] == "find":
            search = parse_find(words)
            listed = self._listed(search) if search else None
            calls = search.calls(listed[0]) if search and listed else None
        else:
            search, listed = None, None
            calls = None if stdin.shared or stdin.endless else arguments_passed(words, stdin.data)
        if calls is None:
            return False
        mark, separate, self._missing = self._here.asking.mark(), fds[1] is not fds[2], ""
        if search is None or listed is None or search.together:
            behaviors = self._called(calls, separate=separate)
        else:
            behaviors = self._searched(search, listed, calls, separate=separate)
        if behaviors is None:
            self._here.asking.back_to(mark)
            if search is not None or not self._missing:
                return False
            said = f"xargs: {self._missing}: No such file or directory\n"
            self._here.write(fds[2], os.fsencode(said))
            self._here.status = 127
            return True
        with self._here.to(streams):
            for behavior in behaviors:
                if fds[1] is fds[2]:
                    self._here.write(fds[1], behavior.output)
                else:
                    self._here.write(fds[1], behavior.stdout)
                    self._here.write(fds[2], behavior.stderr)
        failed = any(behavior.exit_code for behavior in behaviors)
        if search is None:
            self._here.status = 123 if failed else 0
        else:
            self._here.status = int(failed)
        return True

    def _searched(
        self,
        search: FindCall,
        listed: tuple[bytes, frozenset[bytes]],
        calls: Sequence[Sequence[str]],
        *,
        separate: bool,
    ) -> list[Behavior] | None:
        """Query the runner about one command per file found; None if the behavior is unknown.

        If a command removed a directory, `find` reports an error for it and finds nothing in it.
        """
        before, gone = self._here.state, list[str]()
        behaviors = []
        for file, call in zip(search.files(listed[0]), calls, strict=True):
            if any(file.startswith(f"{each}/") for each in gone):
                continue
            was = self._entry(file, before)
            done = self._called([call], separate=separate)
            if was is None or done is None:
                return None
            behaviors += [replace(each, exit_code=0) for each in done]
            if was.perms[0] == "d" and self._entry(file, self._here.state) is None:
                if not search.descends or not _PLAIN.fullmatch(file):
                    return None
                said = f"find: \u2018{file}\u2019: No such file or directory\n".encode()
                behaviors.append(Behavior(1, said, stdout=b"", stderr=said))
                gone.append(file)
        return behaviors if self._finds_no_more(search, listed, before, gone) else None

    @staticmethod
    def _entry(file: str, state: State) -> FileEntry | None:
        """Return the entry of a file itself, without following a link."""
        return state.entry_at(posixpath.normpath(posixpath.join(state.cwd, file)))

    def _called(self, calls: Sequence[Sequence[str]], *, separate: bool) -> list[Behavior] | None:
        behaviors: list[Behavior] = []
        for call in calls:
            asked = Call.of(call)
            behavior = self._here.ask(asked, separate=separate)
            if behavior.output.endswith(b": command not found\n") and not behaviors:
                self._missing = call[0] if _PLAIN.fullmatch(call[0]) else ""
            if behavior.exit_code > 125 or behavior.timed_out or behavior.output_truncated:
                return None
            self._here.asking.learn(asked.text, behavior)
            self._here.advance(asked.text, behavior)
            behaviors.append(behavior)
        return behaviors

    def _listed(self, search: FindCall) -> tuple[bytes, frozenset[bytes]] | None:
        """Return the output of the listing, raw and as a set of names; None if `find` fails."""
        behavior = self._here.ask(Call.of(search.listing), separate=True)
        if behavior.exit_code or behavior.stderr or behavior.output_truncated:
            return None
        data = behavior.stdout or b""
        return data, frozenset(data.split(b"\0"))

    def _finds_no_more(
        self,
        search: FindCall,
        listed: tuple[bytes, frozenset[bytes]],
        before: State,
        gone: Sequence[str],
    ) -> bool:
        """Whether `find` would list no new file, and no directory outside `gone` was removed.

        `before` is the state in which `find` began. Other files may have been removed.
        """
        for name in search.files(listed[0]):
            entry = before.entry(name)
            is_known = any(name == each or name.startswith(f"{each}/") for each in gone)
            if entry is None or entry.perms[0] != "d" or is_known:
                continue
            if self._here.state.entry(name) is None:
                return False
        now = self._listed(search)
        return now is not None and now[1] <= listed[1]
