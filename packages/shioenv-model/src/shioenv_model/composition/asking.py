"""A runner asked about one command after the other, each in the state that the others left."""

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
from shioenv.domain.patch import ContextPatch, diff_documents
from shioenv.domain.pointer import keys
from shioenv.domain.runner import Answer, Runner, State, answer_of
from shioenv.errors import Abstained, PatchError
from shioenv_model.bash.expand import Expander
from shioenv_model.bash.work import COPIED, spend
from shioenv_model.composition.call import Call
from shioenv_model.composition.replay import connected
from shioenv_model.composition.variables import Variables

MOST_ASKED = 400
"""Most commands that one input may ask about; ours, because a longer loop takes too long."""

LONGEST_INPUT = 1024 * 1024
"""Most bytes that go through a pipe, as through a sandbox's standard input."""

_LOOK_UP = 20
"""Steps that looking up a file takes."""
_ADVANCE = 1_000
"""Steps that going to the next state takes, which has a context of its own."""

_OF_THE_SHELL = (
    *("cwd", "env", "settings", "shell_options", "functions", "aliases", "umask", "limits"),
)
"""Areas of a context that a subshell changes for itself alone."""

_SHOWING_ENVIRONMENT = (("env",), ("printenv",))

_TRACING = ("-o xtrace", "-o verbose", "-o noexec", "-o errtrace", "-o functrace")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSetting:
    """How a command is run, beside its text."""

    stdin: bytes = b""
    separate: bool = False
    """The command's two output channels go to different places."""
    piped: bool = False
    """The command's standard input is a pipe, even where that pipe is empty."""
    final: bool = False
    """Bash becomes the command: nothing comes after the command."""
    beside: tuple[tuple[str, ...], ...] = ()
    """Words of the commands that run at the same time, for a command that shows processes."""
    place: bytes = b"bash: line 1: "
    """How Bash begins its messages about the command."""


class Asker:
    """Asks a runner about an input's commands, each in the state that the commands before it left.

    `state` is where the input starts, `text` is the whole input.
    """

    def __init__(self, runner: Runner, state: State, text: str) -> None:
        self.state = state
        self.patches: list[ContextPatch] = []
        """What the commands changed, in the order of the commands."""
        self.digests: dict[str, str] = {}
        """Digests of the contents that changed, by the file's name in `fs`."""
        self.pipes: dict[str, bytes | None] = {}
        """The bytes that are read from each `<(…)`, by its path."""
        self.set_here: set[str] = _set_before(state)
        """Variables that the input set, and those that are no more what they were at first."""
        self.confidence = 1.0
        self.volatile, self.shell_state_known = False, True
        self._runner, self._text = runner, text
        self._execute = getattr(runner, "execute", None)
        self._answer_call = getattr(runner, "answer_call", None)
        self._contents: dict[str, bytes] = {}
        self._asked = 0

    @property
    def executes(self) -> bool:
        """Whether the runner executes: it is asked about whole programs then."""
        return self._execute is not None

    def ask(self, call: Call, how: CallSetting = CallSetting()) -> Behavior:
        """What a command does in the current state, which stays as it is. Errors: Abstained."""
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
            raise Abstained("more changed than a patch can say")
        if how.separate and behavior.stdout is None:
            if behavior.output:
                raise Abstained(f"nobody knows which channel {text!r:.40} writes to")
            behavior = replace(behavior, stdout=b"", stderr=b"")
        self.volatile |= behavior.volatile
        self.shell_state_known &= behavior.shell_state_known
        # a shell that is the command numbers lines of its own
        return behavior if text.startswith(("bash", "sh ")) else _at(behavior, how.place)

    def refuse_tracing(self) -> None:
        """Errors: Abstained under options by which the shell prints or refuses more than usual."""
        settings = self.state.before.document["settings"]
        if any(settings.get(option) for option in _TRACING):
            raise Abstained("set -x, -v or -n is on")

    def count(self) -> None:
        """Counts one more command of the input. Errors: Abstained past `MOST_ASKED`."""
        self._asked += 1
        if self._asked > MOST_ASKED:
            raise Abstained(f"more than {MOST_ASKED} commands to ask about")

    def advance(self, text: str, behavior: Behavior) -> list[tuple[str, str | None]]:
        """Goes to the state after a command. Running `text` leads to that state again.

        Gives the names of files that are gone, each with the file's new name; None: it was removed.
        Errors: Abstained where the patch does not fit the state.
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
        """Remembers a content that files may hold. Gives its digest."""
        spend(1 + len(data) // COPIED)
        digest = hashlib.sha256(data).hexdigest()
        self._contents[digest] = data
        return digest

    def learn(self, text: str, behavior: Behavior) -> None:
        """Remembers what is in the files that a command names, to know copies of them again.

        Nothing is remembered where every content that the command wrote is known already.
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
        """The present place in the input, for `back_to` and `leave`."""
        return Mark(self.state, len(self.patches), dict(self.digests), frozenset(self.set_here))

    def back_to(self, mark: Mark) -> None:
        """Goes back to a mark: the patches since are forgotten.

        Counted commands, `confidence`, `volatile` and `shell_state_known` stay what they are.
        """
        self.state, self.digests, self.set_here = mark.state, mark.digests, set(mark.set_here)
        del self.patches[mark.patches :]

    def leave(self, mark: Mark) -> None:
        """Ends the subshell that began at a mark: what the shell has for itself is as it was."""
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
        """Commands inside have pipes of their own."""
        saved, self.pipes = self.pipes, {}
        try:
            yield
        finally:
            self.pipes = saved

    def _answer(self, call: Call, state: State) -> Answer:
        """The answer of a runner that takes calls apart, or of a runner that reads texts."""
        if self._answer_call is None:
            return answer_of(self._runner, call.text, state)
        answer: Answer = self._answer_call(call, state)
        return answer

    def _executed(self, text: str, state: State, how: CallSetting) -> Behavior:
        """The answer of a runner that executes, to which it matters how Bash runs the command.

        Output that shows the shell's own command line shows the whole input there.
        """
        if how.beside:
            # the command's output goes past the commands beside it, which wait for the command
            others = f"{' | '.join(map(' '.join, how.beside))} >/dev/null 2>&1"
            text = f"{{ {text} 4>&1 >&3 | {others}; (exit ${{PIPESTATUS[0]}}); }} 3>&1"
        elif how.piped and not state.stdin:
            text = f"{{ {text}; }} < <(:)"
        elif not how.final:
            text = f"{{ {text}; }}"
        assert self._execute is not None
        behavior: Behavior = self._execute(text, state, separate=how.separate)
        for separator in (" ", "\0"):  # as `ps` and the kernel show it
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
    """A place in an input to come back to; `patches` is how many patches there were."""

    state: State
    patches: int
    digests: dict[str, str]
    set_here: frozenset[str]


def _called(call: Call, state: State) -> State:
    """The state for a program that takes the place of its shell: Bash lowers `SHLVL` for it."""
    level = state.before.document["env"].get("SHLVL", "")
    program = call.words[n_assignments(call.words) :][:1]
    if program not in _SHOWING_ENVIRONMENT or not level.isdecimal() or not int(level):
        return state
    patch = ContextPatch((("=", "/env/SHLVL", str(int(level) - 1)),))
    return state.after("", Behavior(0, b"", patch))


def _among(
    behavior: Behavior, call: Call, state: State, text: str, beside: Sequence[Sequence[str]]
) -> Behavior:
    """The behavior of what lists processes, with its shell's and those of the stages beside it."""
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
    """The variables whose values differ from those of the pristine machine."""
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
    """The behavior with `place` at the beginning of Bash's own messages."""
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
"""How the shell was called that runs an input, without the input."""


def with_stages(
    listing: bytes, own: Sequence[str], text: str, others: Sequence[Sequence[str]]
) -> bytes:
    """The listing with the shell, which runs `text`, and with the words of the other stages.

    `listing` is what the words `own` list alone. It stays as it is where it does not end with the
    line of `own`, or has no column of commands at its end.
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
    """The row with another number in a column, whose numbers end where its title does."""
    column = re.search(rf"\b{title}\b", header)
    if column is None:
        return row
    old = re.search(r" *\d+\Z", row[: column.end()])
    if old is None:
        return row
    return row[: old.start()] + value.rjust(len(old[0])) + row[column.end() :]
