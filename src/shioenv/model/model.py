"""The default model: what was executed, what is put together by rule, what a memory makes of it.

Nothing is executed, no process is started, and no built system is needed. Every answer says where
it is from and how sure that is; what nobody knows is guessed, and marked.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from shioenv.bash.words import without_assignments
from shioenv.composition.changes import attributes
from shioenv.composition.inputs import Composition
from shioenv.composition.opening import opening, without_reading
from shioenv.composition.reading import read_program
from shioenv.composition.shell import Shell
from shioenv.composition.whereabouts import (
    changed_directory,
    named,
    printed_directory,
    unnamed,
    without_name,
)
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import KEPT, OF_DATE
from shioenv.domain.names import file_key, name_bytes
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.pointer import keys, pointer
from shioenv.domain.runner import Answer, Guesser, Runner, State, answer_of
from shioenv.domain.work import answering, aside, uncounted
from shioenv.errors import Abstained, ContextError, PatchError
from shioenv.model.memory.memory import Memory
from shioenv.system.world import World

GUESSED = "guessed"
"""How the source of an answer begins that nothing speaks for; its confidence is 0."""

_BUILTINS = frozenset(
    {
        *(".", ":", "[", "alias", "bg", "bind", "break", "builtin", "caller", "cd", "command"),
        *("compgen", "complete", "compopt", "continue", "declare", "dirs", "disown", "echo"),
        *("enable", "eval", "exec", "exit", "export", "false", "fc", "fg", "getopts", "hash"),
        *("help", "history", "jobs", "kill", "let", "local", "logout", "mapfile", "popd", "printf"),
        *("pushd", "pwd", "read", "readarray", "readonly", "return", "set", "shift", "shopt"),
        *("source", "suspend", "test", "times", "trap", "true", "type", "typeset", "ulimit"),
        *("umask", "unalias", "unset", "wait"),
    }
)
_COMMAND = re.compile(r"[\w.+@-]+")


class Judged(Guesser, Protocol):
    """A runner that says how sure it is, and which one it is."""

    @property
    def version(self) -> str:
        """What exactly it is."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """One command that was asked about on the way to an answer."""

    input: str
    answer: Answer
    nearest: tuple[tuple[str, float], ...] = ()
    """Executed inputs that speak for it, each with its distance."""
    alternatives: tuple[tuple[Behavior, float], ...] = ()
    """Other answers, each with what the ranker gives it."""


class Model:
    """Answers any input: as it was executed, else put together of its commands, each as it was
    executed or as the memory guesses.

    `stages` answers commands that read a pipe, where it is given: a runner that is given the text
    in `State.stdin`. `stages_name` is what it is called in every answer that used it. What it is
    surer of than `abstain_below`, 0 to 1, or as sure, it says; 0 is everything. `world` is the
    machine that it is asked about, where that is not the one that the memory is of.
    """

    patch_level = "full"

    def __init__(
        self,
        memory: Memory,
        card: Mapping[str, Any] | None = None,
        *,
        written: Judged | None = None,
        stages: Runner | None = None,
        stages_name: str = "",
        abstain_below: float = 0.0,
        world: World | None = None,
    ) -> None:
        self.memory = memory
        self.world = world or memory.world
        """The machine that it is asked about."""
        self.abstain_below = abstain_below
        self.card = dict(card or {})
        """What the model says of itself."""
        self.steps: list[Step] = []
        """What the newest answer rests on, command by command."""
        self._model = written
        self._stages, self._stages_name = stages, stages_name
        self._used_stages = False
        self._commands = _Single(self._single)
        self._composition = Composition(self._commands, self.world.state())
        self._reached: dict[tuple[str, tuple[str, ...]], State] = {}

    @property
    def version(self) -> str:
        """What exactly it is, in every result."""
        name, system = self.card.get("name", "memory"), self.card.get("system_digest", "")
        stages = f", stages by {self._stages_name}" if self._stages else ""
        written = f", beside {self._model.version}" if self._model else ""
        least = f", sure of {self.abstain_below:g}" if self.abstain_below else ""
        records = f"{len(self.memory.index)} records of system {system[:12]}"
        where = "" if self.world is self.memory.world else ", asked about another machine"
        return f"{name} {self.memory.digest}, {records}{written}{stages}{least}{where}"

    @property
    def training(self) -> str:
        """Where the inputs are that it was made of: the directory of its memory."""
        return str(self.memory.index.directory)

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """The behavior alone."""
        return self.answer(shell_input, state).behavior

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        """What the input does, with the share of such answers that the model expects to be right.

        What cannot be known is the best guess there is, its source begins with `guessed`, and its
        confidence is 0. Inputs in the state's history are answered first, where the state does not
        say what they left. Errors: Abstained below `abstain_below`, and for too much work.
        """
        with answering(shell_input):
            return self._answer(shell_input, state)

    def _answer(self, shell_input: str, state: State | None) -> Answer:
        start = self.reached(state)
        self.steps = []
        self._used_stages = False
        answer = self._answered(shell_input, start)
        if answer.confidence < self.abstain_below:
            raise Abstained(
                f"{shell_input!r:.60} is answered with a confidence of {answer.confidence:.2f}, "
                f"below {self.abstain_below:g}: {answer.source}"
            )
        if self._used_stages:
            return replace(answer, source=f"{answer.source}; stages by {self._stages_name}")
        return answer

    def reached(self, state: State | None) -> State:
        """The state with what its history led to, as far as the model knows."""
        world = self.world
        placed = world.placed(state)
        if placed.context is not None or not placed.history:
            return placed
        key = placed.cwd, placed.history
        if key not in self._reached:
            here = world.state(placed.cwd)
            for text in placed.history:
                self.steps = []
                with aside(text):
                    behavior = self._answered(text, here).behavior
                try:
                    here = here.after(text, behavior, self._written(behavior, here))
                except PatchError:
                    here = here.after(text, replace(behavior, patch=type(behavior.patch)()))
            if len(self._reached) > 64:
                self._reached.clear()
            self._reached[key] = here
        return replace(self._reached[key], stdin=placed.stdin)

    def _written(self, behavior: Behavior, before: State) -> dict[str, bytes]:
        """What is in the files that an input wrote, by name, where that is what one of its commands
        printed, by itself or behind what was there.
        """
        printed = [b""]
        for step in self.steps:
            said = step.answer.behavior
            printed += [said.output, said.stdout or b"", said.stderr or b""]
        found: dict[str, bytes] = {}
        for name, digest in behavior.content_digests.items():
            old = before.read(name) or b""
            for content in (*printed, *(old + each for each in printed)):
                if hashlib.sha256(content).hexdigest() == digest:
                    found[name] = content
        return found

    def _answered(self, text: str, state: State) -> Answer:
        exact = self.memory.exact(text, state)
        if exact is not None:
            self.steps.append(Step(text, exact, ((text, 0.0),)))
            return exact
        try:
            if "\0" not in text and self.memory.take(text, state) is None:
                # assignments, comments, nothing at all: no command is asked about
                answer = Shell(self._commands, state, text).answer(read_program(text))
            else:
                answer = self._composition.answer(text, state)
        except Abstained as declined:
            return self._guess(text, state, declined.message)
        except (PatchError, ContextError) as misfit:
            return self._guess(text, state, misfit.message)
        single = len(self.steps) == 1 and self.steps[-1].input == text
        return self.steps[-1].answer if single else answer

    def _single(self, text: str, state: State) -> Answer:
        """One command, in the state that those before it left."""
        step = self._step(text, state)
        self.steps.append(step)
        return replace(step.answer, behavior=self._with_times(step.answer.behavior, state))

    def _with_times(self, behavior: Behavior, state: State) -> Behavior:
        """The behavior with what records do not tell: a directory in which something is made or
        removed has the time of now. Of one input alone that is no part of its patch.
        """
        fresh = self._fresh
        if fresh is None or not behavior.patch:
            return behavior
        told = {operation[1] for operation in behavior.patch.operations}
        start = os.fsencode(state.cwd)
        above: dict[str, None] = {}
        for operation in behavior.patch.operations:
            for path in operation[1:] if operation[0] == "m" else operation[1:2]:
                area, *names = keys(path) or [""]
                if operation[0] != "=" and area == "fs" and len(names) == 1:
                    whole = posixpath.join(start, name_bytes(names[0]))
                    above[file_key(posixpath.dirname(whole), start)] = None
        operations: list[Operation] = []
        gone = {
            keys(each[1])[1]
            for each in behavior.patch.operations
            if each[0] in "rm" and each[1].startswith("/fs/")
        }
        for name in _replaced(behavior.patch, state.before.document["fs"], gone):
            whole = posixpath.join(start, name_bytes(name))
            above[file_key(posixpath.dirname(whole), start)] = None
        for name in (each for each in above if each not in gone):
            entry = state.before.document["fs"].get(name, fresh)
            for each in OF_DATE:
                path = pointer("fs", name, each)
                if path not in told and entry[each] != fresh[each]:
                    operations.append(("=", path, fresh[each]))
        if not operations:
            return behavior
        return replace(behavior, patch=ContextPatch((*behavior.patch.operations, *operations)))

    def _step(self, text: str, state: State) -> Step:
        opened = opening(text, state, self._fresh) if self._fresh else None
        if opened is not None:
            return Step(text, Answer(opened, 1.0, "a redirection, by rule"))
        fed = without_reading(text, state)
        if fed is not None:
            return replace(self._step(*fed), input=text)
        printed = printed_directory(text, state)
        if printed is not None:
            return Step(text, Answer(printed, 1.0, "the working directory, by rule"))
        moved = changed_directory(text, state) if state.context is not None else None
        if moved is not None:
            return Step(text, Answer(moved, 1.0, "the working directory, by rule"))
        exact = self.memory.exact(text, state)
        if exact is not None:
            return Step(text, exact, ((text, 0.0),))
        if unnamed(text, state, self.world.start):
            return self._named(text, state)
        if state.stdin and self._stages is not None and self._reads_the_pipe(text, state):
            try:
                answer = answer_of(self._stages, text, state)
            except Abstained:
                pass
            else:
                self._used_stages = True
                return Step(text, replace(answer, source=self._stages_name))
        if self._searches_elsewhere(state):
            missing = self._not_found(text, state)
            if missing is not None:
                return Step(text, missing)
        written = self._by_model(text, state)
        try:
            found = self.memory.find(text, state)
        except Abstained as declined:
            missing = self._not_found(text, state)
            return Step(text, missing or written or self._nothing(declined.message))
        if written is not None and written.confidence > found.answer.confidence:
            others = ((found.answer.behavior, found.answer.confidence), *found.alternatives)
            return Step(text, written, found.nearest, others)
        return Step(text, found.answer, found.nearest, found.alternatives)

    def _by_model(self, text: str, state: State) -> Answer | None:
        """What the model beside the memory says; None where there is none, or it declines."""
        if self._model is None:
            return None
        try:
            return self._model.answer(text, state)
        except Abstained:
            return None

    def _named(self, text: str, state: State) -> Step:
        """What a command does that works on its directory without naming it: what it does from
        where the memory was made, where nothing else was changed before, with the name.
        """
        name: str = state.before.document["cwd"]
        fresh = self.world.state(state.cwd)
        if fresh.before.document["fs"] == state.before.document["fs"]:
            state = self.world.state()
            name = name.removeprefix(f"{state.cwd}/")
        step = self._step(named(text, name), state)
        said = without_name(step.answer.behavior, name)
        return replace(step, input=text, answer=replace(step.answer, behavior=said))

    @cached_property
    def _fresh(self) -> Mapping[str, Any] | None:
        """The entry of a file that is made now; None where the memory does not know it."""
        with suppress(Abstained, PatchError), uncounted():
            found = self.memory.find("touch a-new-file", self.world.state())
            for operation in found.answer.behavior.patch.operations:
                if operation[0] == "a" and isinstance(operation[2], dict):
                    return operation[2]
        return None

    def _reads_the_pipe(self, text: str, state: State) -> bool:
        taken = self.memory.take(text, state)
        if taken is None:
            return False
        files = any(each.kind in "fdls" for each in taken.operands)
        return any(each.kind == "x" for each in taken.operands) or not (files or taken.operands)

    def _searches_elsewhere(self, state: State) -> bool:
        """Whether programs are looked for in other directories than on the untouched machine."""
        fresh = self.world.state(state.cwd)
        paths = [each.before.document["env"].get("PATH") for each in (state, fresh)]
        return state.context is not None and paths[0] != paths[1]

    def _not_found(self, text: str, state: State) -> Answer | None:
        """What Bash says of a command that no directory of PATH holds."""
        name = (without_assignments(text).split() or [""])[0]
        if name in _BUILTINS or not _COMMAND.fullmatch(name):
            return None
        path = state.before.document["env"].get("PATH", "")
        if "/" in name or name in state.before.document.get("functions", {}):
            return None
        if any(state.entry(f"{directory}/{name}") for directory in path.split(":") if directory):
            return None
        said = f"bash: line 1: {name}: command not found\n".encode()
        behavior = Behavior(127, said, stdout=b"", stderr=said)
        return Answer(behavior, 0.95, "no directory of PATH holds it")

    def _guess(self, text: str, state: State, why: str) -> Answer:
        """The best guess for what cannot be put together."""
        try:
            found = self.memory.find(text, state)
        except (Abstained, PatchError, ContextError):
            return self._nothing(why)
        answer = replace(found.answer, confidence=0.0, source=f"{GUESSED}: {why}")
        self.steps.append(Step(text, answer, found.nearest, found.alternatives))
        return answer

    @staticmethod
    def _nothing(why: str) -> Answer:
        return Answer(Behavior(0, b"", stdout=b"", stderr=b""), 0.0, f"{GUESSED}: {why}")


def _replaced(patch: ContextPatch, files: Mapping[str, Any], gone: Set[str]) -> list[str]:
    """The files whose place one that is gone took, by their names."""
    taken = [files[name] for name in gone if name in files]
    return [
        name
        for name, told in attributes(patch.operations).items()
        if name in files
        and any(all((files[name] | told)[each] == was[each] for each in KEPT) for was in taken)
    ]


class _Single:
    """The runner that a composition asks."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """The behavior alone."""
        behavior: Behavior = self.answer(shell_input, state).behavior
        return behavior
