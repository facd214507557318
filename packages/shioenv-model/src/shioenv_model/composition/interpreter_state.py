"""Queries to a runner, command by command, each in the state left by the previous ones."""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from shioenv.bash.builtins import BUILTINS
from shioenv.bash.words import n_assignments
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import keys
from shioenv.domain.patch import ContextPatch, diff_documents
from shioenv.domain.runner import Answer, Runner, State, answer_of
from shioenv.errors import Abstained, PatchError
from shioenv_model.bash.expand import Expander
from shioenv_model.bash.work import COPIED, spend
from shioenv_model.composition.call import Call
from shioenv_model.composition.command_replay import connected
from shioenv_model.composition.variables import Variables

MOST_ASKED = 400
"""Maximum number of commands per input about which the runner is queried (our choice, because a
longer loop takes too long)."""

LONGEST_INPUT = 1024 * 1024
"""Maximum bytes through a pipe, as for a sandbox's standard input."""

_LOOK_UP = 20
"""Steps charged for a file lookup."""
_ADVANCE = 1_000
"""Steps charged for advancing to the next state, which has a new context."""

_OF_THE_SHELL = (
    *("cwd", "env", "settings", "shell_options", "functions", "aliases", "umask", "limits"),
)
"""Areas of a context whose changes in a subshell do not affect the parent shell."""

_SHOWING_ENVIRONMENT = (("env",), ("printenv",))

_TRACING = ("-o verbose", "-o noexec")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSetting:
    """The setting of a single command within an input."""

    stdin: bytes = b""
    separate: bool = False
    """Whether standard output and standard error go to different places."""
    piped: bool = False
    """Whether standard input is a pipe, even an empty one."""
    final: bool = False
    """Whether the shell execs the command, because it is the last one."""
    beside: tuple[tuple[str, ...], ...] = ()
    """For a command that lists processes: the words of the pipeline stages that run beside it."""
    place: bytes = b"bash: line 1: "
    """The prefix of Bash's error messages about the command."""


class Asker:
    """Queries a runner about an input's commands, each in the state left by the previous ones.

    `state` is the initial state, `text` is the whole input.
    """

    def __init__(self, runner: Runner, state: State, text: str) -> None:
        self.state = state
        self.patches: list[ContextPatch] = []
        """The commands' context patches, in order."""
        self.digests: dict[str, str] = {}
        """Digests of changed contents, by the file's name in `fs`."""
        self.pipes: dict[str, bytes | None] = {}
        """The data of each process substitution `<(…)`, by its path."""
        self.set_here: set[str] = _set_before(state)
        """Variables that the input set, or that differed from the pristine machine before the
        input."""
        self.confidence = 1.0
        self.volatile, self.shell_state_known = False, True
        self._runner, self._text = runner, text
        self._execute = getattr(runner, "execute", None)
        self._answer_call = getattr(runner, "answer_call", None)
        self._contents: dict[str, bytes] = {}
        self._asked = 0

    @property
    def executes(self) -> bool:
        """Whether the runner executes inputs; such a runner is given whole programs."""
        return self._execute is not None

    def ask(self, call: Call, how: CallSetting = CallSetting()) -> Behavior:
        """Return a command's behavior in the current state, without advancing it.

        Errors: Abstained.
        """
        self.count()
        text = call.text
        spend(len(text) + len(how.stdin) // COPIED)
        self.refuse_tracing()
        if len(how.stdin) > LONGEST_INPUT:
            raise Abstained("more goes through a pipe than is passed on")
        state = replace(self.state, stdin=how.stdin)
        if self.pipes:
            state = replace(state, written={**state.written, **self.pipes})
        if self._execute is not None:
            behavior = self._executed(text, state, how)
        else:
            answer = self._answer(call, _called(call, state) if how.final else state)
            self.confidence *= answer.confidence
            for content in answer.written.values():
                self.know(content)
            behavior = answer.behavior
            if how.beside and self._asked == 1 and not state.history:
                behavior = _among(behavior, call, state, self._text, how.beside)
        if behavior.patch_truncated:
            raise Abstained("more changes than a patch can represent")
        if how.separate and behavior.stdout is None:
            if behavior.output:
                raise Abstained(f"the channel that {text!r:.40} writes to is unknown")
            behavior = replace(behavior, stdout=b"", stderr=b"")
        self.volatile |= behavior.volatile
        self.shell_state_known &= behavior.shell_state_known
        # a child shell's messages have that shell's line numbers
        return behavior if text.startswith(("bash", "sh ")) else _at(behavior, how.place)

    def refuse_tracing(self) -> None:
        """Abstain if options make the shell print its input or commands, or execute nothing."""
        settings = self.state.before.document["settings"]
        if any(settings.get(option) for option in _TRACING):
            raise Abstained("set -v or -n is on")
        if self.executes and settings.get("-o xtrace"):
            raise Abstained("set -x is on")

    def count(self) -> None:
        """Count one more command of the input. Errors: Abstained past `MOST_ASKED`."""
        self._asked += 1
        if self._asked > MOST_ASKED:
            raise Abstained(f"more than {MOST_ASKED} commands")

    def advance(self, text: str, behavior: Behavior) -> list[tuple[str, str | None]]:
        """Advance to the state after a command. Executing `text` must lead to the same state.

        Return the names of removed files, each with its new name if it was moved, else None.
        Errors: Abstained if the patch does not apply to the state.
        """
        spend(_ADVANCE + len(text))
        known = {
            name: self._contents[digest]
            for name, digest in behavior.content_digests.items()
            if digest in self._contents
        }
        bare = replace(self.state, stdin=b"")
        try:
            self.state = bare.after(connected(text, self.pipes), behavior, known)
        except PatchError as misfit:
            raise Abstained(f"answers do not fit together: {misfit.message}") from None
        gone: list[tuple[str, str | None]] = []
        if not behavior.patch and not behavior.content_digests:
            return gone
        self.patches.append(behavior.patch)
        for operation in behavior.patch.operations:
            area, *names = keys(operation[1]) or [""]
            if area in ("env", "settings") and names:
                self.set_here.add(names[0])
            elif area == "fs" and len(names) == 1 and operation[0] in "rm":
                target = keys(operation[2])[1] if operation[0] == "m" else None
                digest = self.digests.pop(names[0], None)
                if digest is not None and target is not None:
                    self.digests[target] = digest
                gone.append((names[0], target))
        self.digests |= behavior.content_digests
        return gone

    def know(self, data: bytes) -> str:
        """Store a content that files may have, and return its digest."""
        spend(1 + len(data) // COPIED)
        digest = hashlib.sha256(data).hexdigest()
        self._contents[digest] = data
        return digest

    def learn(self, text: str, behavior: Behavior) -> None:
        """Store the contents of the files that a command names, so that copies are recognized.

        Nothing is stored if every content that the command wrote is already known.
        """
        if not set(behavior.content_digests.values()) - self._contents.keys():
            return
        self.know(b"")
        for word in text.split():
            spend(_LOOK_UP)
            content = self.state.read(word.strip("'\"")) if "\0" not in word else None
            if content is not None and len(content) <= LONGEST_INPUT:
                self.know(content)

    def mark(self) -> Mark:
        """Return a checkpoint of the current state, for `back_to` and `leave`."""
        return Mark(self.state, len(self.patches), dict(self.digests), frozenset(self.set_here))

    def back_to(self, mark: Mark) -> None:
        """Roll back to a checkpoint, dropping later patches.

        The command count, `confidence`, `volatile` and `shell_state_known` are not rolled back.
        """
        self.state, self.digests, self.set_here = mark.state, mark.digests, set(mark.set_here)
        del self.patches[mark.patches :]

    def leave(self, mark: Mark) -> None:
        """End the subshell that began at a checkpoint, and restore the parent shell's own state."""
        history = mark.state.history
        inner = [text for text in self.state.history[len(history) :] if text]
        lasting = any(
            (keys(operation[1]) or [""])[0] not in _OF_THE_SHELL
            for patch in self.patches[mark.patches :]
            for operation in patch.operations
        )
        now, then = self.state.before.document, mark.state.before.document
        undone = diff_documents(_own(now), _own(then))
        if undone:
            self.patches.append(undone)
            self.state = self.state.after("", Behavior(0, b"", undone))
        if inner and lasting:
            history = (*history, f"( {'; '.join(inner)} )")
        self.state = replace(self.state, history=history)
        self.set_here = set(mark.set_here)

    @contextmanager
    def other_pipes(self) -> Iterator[None]:
        """Use a separate set of process substitutions for the commands in the block."""
        saved, self.pipes = self.pipes, {}
        try:
            yield
        finally:
            self.pipes = saved

    def _answer(self, call: Call, state: State) -> Answer:
        """Query the runner with the parsed call if it accepts one, else with the text."""
        if self._answer_call is None:
            return answer_of(self._runner, call.text, state)
        answer: Answer = self._answer_call(call, state)
        return answer

    def _executed(self, text: str, state: State, how: CallSetting) -> Behavior:
        """Execute the command in the way in which Bash runs it within the input.

        If the output shows the shell's command line, replace it by the command line of the whole
        input.
        """
        if how.beside:
            # the other stages run, but do not get the command's output
            others = f"{' | '.join(map(' '.join, how.beside))} >/dev/null 2>&1"
            text = f"{{ {text} 4>&1 >&3 | {others}; (exit ${{PIPESTATUS[0]}}); }} 3>&1"
        elif how.piped and not state.stdin:
            text = f"{{ {text}; }} < <(:)"
        elif not how.final:
            text = f"{{ {text}; }}"
        assert self._execute is not None
        behavior: Behavior = self._execute(text, state, separate=how.separate)
        for separator in (" ", "\0"):  # as printed by `ps`, and as in /proc
            old, new = (os.fsencode(f"-c{separator}{each}") for each in (text, self._text))
            behavior = replace(
                behavior,
                output=behavior.output.replace(old, new),
                stdout=behavior.stdout and behavior.stdout.replace(old, new),
            )
        if not how.beside:
            return behavior
        return replace(behavior, patch=ContextPatch(), content_digests={})


@dataclass(frozen=True, slots=True)
class Mark:
    """A checkpoint within an input; `patches` is the number of patches so far."""

    state: State
    patches: int
    digests: dict[str, str]
    set_here: frozenset[str]


def _called(call: Call, state: State) -> State:
    """Return the state for a program that the shell execs: Bash decrements `SHLVL` before that."""
    level = state.before.document["env"].get("SHLVL", "")
    program = call.words[n_assignments(call.words) :][:1]
    if program not in _SHOWING_ENVIRONMENT or not level.isdecimal() or not int(level):
        return state
    patch = ContextPatch((("=", "/env/SHLVL", str(int(level) - 1)),))
    return state.after("", Behavior(0, b"", patch))


def _among(
    behavior: Behavior, call: Call, state: State, text: str, beside: Sequence[Sequence[str]]
) -> Behavior:
    """Add the shell and the concurrent stages to the output of a process listing."""
    expander = Expander(Variables(state))
    try:
        own, *others = (
            [field for word in words for field in expander.fields(word)]
            for words in (call.words, *beside)
        )
    except Abstained:
        return behavior
    if not all(words and words[0] not in BUILTINS for words in others):
        return behavior
    shown = with_stages(behavior.output, own, text, others)
    return replace(behavior, output=shown, stdout=shown if behavior.stdout else behavior.stdout)


def _set_before(state: State) -> set[str]:
    """Return the variables whose values differ from those on the pristine machine."""
    if state.context is None or state.pristine is None:
        return set()
    now, first = state.before.document, state.pristine.context(state.cwd).document
    if now is first:
        return set()
    return {
        name
        for area in ("env", "settings")
        for name in now[area].keys() | first[area].keys()
        if now[area].get(name) != first[area].get(name)
    }


def _own(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in _OF_THE_SHELL if name in document}


def _at(behavior: Behavior, place: bytes) -> Behavior:
    """Replace the default prefix of Bash's messages by `place`."""
    first = b"bash: line 1: "
    if place == first or first not in behavior.output + (behavior.stderr or b""):
        return behavior
    return replace(
        behavior,
        output=behavior.output.replace(first, place),
        stderr=behavior.stderr and behavior.stderr.replace(first, place),
    )


_TITLES = frozenset({"CMD", "COMMAND"})
_STATES = {"shell": "Ss", "own": "R", "other": "S"}
SHELL = ("bash", "--norc", "--noprofile", "-c")
"""The command line of the shell that runs an input, up to the input itself."""


def with_stages(
    listing: bytes, own: Sequence[str], text: str, others: Sequence[Sequence[str]]
) -> bytes:
    """Add the rows of the shell, which runs `text`, and of the other stages to a listing.

    `listing` is the output of the command `own` when run alone. It is returned unchanged if its
    last row is not that of `own`, or its last column is not the command.
    """
    *lines, last, end = os.fsdecode(listing).split("\n") if listing.count(b"\n") > 1 else ("", "")
    title = lines[0].split()[-1:] if lines else []
    command = next((one for one in (" ".join(own), own[0]) if last.endswith(f" {one}")), None)
    number = re.search(r"\bPID\b", lines[0]) if lines else None
    if end or number is None or command is None or not _TITLES & {*title}:
        return listing
    found = re.search(r"\d+\Z", last[: number.end()])
    if found is None:
        return listing
    named = command == own[0] != " ".join(own) or (title == ["CMD"] and len(own) == 1)
    first = int(found[0])
    rows = [("shell", (*SHELL, text)), ("own", own), *(("other", words) for words in others)]
    made = []
    for place, (kind, words) in enumerate(rows):
        row = _put(last, lines[0], "PID", str(first + place))
        if place:
            row = _put(row, lines[0], "PPID", str(first))
        at = lines[0].find("STAT")
        if at >= 0:
            row = row[:at] + _STATES[kind].ljust(4) + row[at + 4 :]
        shown = posixpath.basename(words[0]) if named else " ".join(words)
        made.append(row.removesuffix(command) + shown)
    return os.fsencode("\n".join((*lines, *made, "")))


def _put(row: str, header: str, title: str, value: str) -> str:
    """Replace a number in a right-aligned column of a row."""
    column = re.search(rf"\b{title}\b", header)
    if column is None:
        return row
    old = re.search(r" *\d+\Z", row[: column.end()])
    if old is None:
        return row
    return row[: old.start()] + value.rjust(len(old[0])) + row[column.end() :]
