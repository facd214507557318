"""Answers for single commands, from the first of several answerers that knows the command."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeAlias

from shioenv.bash.builtins import BUILTINS, KEYWORDS
from shioenv.bash.words import split_words, unquoted, without_assignments
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import KEPT, OF_DATE, keys, pointer
from shioenv.domain.names import file_key, name_bytes
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.runner import Answer, Guesser, Runner, State, answer_of
from shioenv.errors import Abstained
from shioenv_model.bash.expand import Expander
from shioenv_model.composition.call import Call
from shioenv_model.composition.changes import attributes
from shioenv_model.composition.directories import changed_directory, printed_directory
from shioenv_model.composition.opening import opening, read_redirected_input
from shioenv_model.composition.ruled import ruled
from shioenv_model.composition.variables import Variables
from shioenv_model.memory.memory import Memory
from shioenv_model.memory.rewrite import Taken
from shioenv_model.memory.sources import ALL, Sources
from shioenv_model.memory.world import World
from shioenv_model.rules.registry import AFTER_RECORDS, BEFORE_RECORDS, EFFECT, Rule, Step

GUESSED = "guessed"
"""The source prefix of an answer without support. Its confidence is 0."""

EXACT = "exact"
"""The name of the answerer that uses records of the same input."""

_COMMAND = re.compile(r"[][\w.+@:,=-]+")


class VersionedGuesser(Guesser, Protocol):
    """A runner with a confidence for its answers, and a version."""

    @property
    def version(self) -> str:
        """The runner's exact identity."""
        ...


Answerer: TypeAlias = Callable[[Call, State], Step | None]
"""A function that answers a command in the state left by the previous ones; None for an unknown
command."""


class Commands:
    """A runner of single commands, for use in a `Composition`.

    `stages` answers commands that read a pipe, and is named `stages_name` in its answers. `written`
    is used in addition to the memory, and the answer with the higher confidence is returned.
    `sources` are the sources of answers, in addition to Bash's own rules.
    """

    def __init__(
        self,
        memory: Memory,
        world: World,
        *,
        written: VersionedGuesser | None = None,
        stages: Runner | None = None,
        stages_name: str = "",
        sources: Sources = ALL,
    ) -> None:
        self._memory, self._written, self._sources = memory, written, sources
        self.world = world
        """The machine for which commands are answered."""
        self._stages, self._stages_name = stages, stages_name
        self._taken: tuple[Call | None, State | None, Taken | None] = None, None, None
        self.steps: list[Step] = []
        """The queries and answers, command by command."""
        self.answerers: Mapping[str, Answerer] = {
            "redirection": self._redirection,
            "file as input": self._given,
            "working directory": self._directory,
            "builtin": self._builtin,
            **self._rules(BEFORE_RECORDS),
            **({EXACT: self.look_up} if sources.records else {}),
            **self._rules(AFTER_RECORDS),
            "emulator": self._emulator,
            "other PATH": self._elsewhere,
            "memory": self.remember,
            "command not found": self._not_found,
        }
        """The answerers by name, in order of application."""

    def _rules(self, rules: Mapping[str, Rule]) -> dict[str, Answerer]:
        """Wrap the rules as answerers; none if rules are disabled."""
        if not self._sources.rules:
            return {}
        return {name: partial(rule, respondent=self) for name, rule in rules.items()}

    @property
    def used_stages(self) -> bool:
        """Whether the runner `stages` answered one of the `steps`."""
        return any("emulator" in step.asked[-1:] for step in self.steps)

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return only the behavior."""
        return self.answer_call(Call.parse(shell_input), self.world.placed(state)).behavior

    def answer_call(self, call: Call, state: State, *, looked_up: bool = False) -> Answer:
        """Answer a command in a state.

        `looked_up`: see `ask`. The answer is appended to `steps`.
        """
        step = self.ask(call, state, looked_up=looked_up)
        self.steps.append(step)
        return replace(step.answer, behavior=self.with_times(step.answer.behavior, state))

    def ask(self, call: Call, state: State, *, looked_up: bool = False) -> Step:
        """Return the answer of the first answerer that knows the command, else a guess.

        `looked_up`: records of the input were looked up, and there is none.
        """
        asked: list[str] = []
        for name, answerer in self.answerers.items():
            if looked_up and name == EXACT:
                continue
            asked.append(name)
            step = answerer(call, state)
            if step is not None:
                return replace(step, asked=(*asked, *step.asked))
        why = f"nothing like {call.text!r:.60} was executed"
        return Step(call.text, nothing(why), asked=(*asked, GUESSED))

    def parse(self, call: Call, state: State) -> Taken | None:
        """Parse a command as `Memory.take` does. The current command is parsed only once."""
        call_before, state_before, taken = self._taken
        if call_before is not call or state_before is not state:
            taken = self._memory.take(call, state)
            self._taken = call, state, taken
        return taken

    def _redirection(self, call: Call, state: State) -> Step | None:
        fresh = self.world.made
        opened = None if fresh is None else opening(call, state, fresh)
        if opened is None:
            return None
        return Step(call.text, Answer(opened, 1.0, "a redirection, by rule"))

    def _given(self, call: Call, state: State) -> Step | None:
        fed = read_redirected_input(call, state)
        return None if fed is None else replace(self.ask(*fed), input=call.text)

    def _directory(self, call: Call, state: State) -> Step | None:
        said = printed_directory(call, state) or changed_directory(call, state)
        if said is None:
            return None
        return Step(call.text, Answer(said, 1.0, "the working directory, by rule"))

    def _builtin(self, call: Call, state: State) -> Step | None:
        said = ruled(call, state)
        return None if said is None else Step(call.text, Answer(said, 1.0, "a builtin, by rule"))

    def look_up(self, call: Call, state: State) -> Step | None:
        """Return the behavior in a record of the same command; None if there is no record."""
        exact = self._memory.exact(call.text, state) if self._sources.records else None
        if exact is None:
            return None
        effect = self.answerers.get(EFFECT)
        if exact.behavior.patch and effect is not None:  # records omit written contents
            ruled = effect(call, state)
            if ruled and _is_same(ruled.answer.behavior, exact.behavior):
                digests = ruled.answer.behavior.content_digests
                behavior = replace(exact.behavior, content_digests=digests)
                exact = replace(exact, behavior=behavior, written=ruled.answer.written)
        return Step(call.text, exact, ((call.text, 0.0),))

    def _emulator(self, call: Call, state: State) -> Step | None:
        if not state.stdin or self._stages is None or not self._reads_the_pipe(call, state):
            return None
        try:
            answer = answer_of(self._stages, call.text, state)
        except Abstained:
            return None
        return Step(call.text, replace(answer, source=self._stages_name))

    def _elsewhere(self, call: Call, state: State) -> Step | None:
        """Return Bash's error for a command that is not found because PATH was changed."""
        if state.context is None:
            return None
        fresh = self.world.state(state.cwd)
        paths = [each.before.document["env"].get("PATH") for each in (state, fresh)]
        return self._not_found(call, state) if paths[0] != paths[1] else None

    def remember(self, call: Call, state: State) -> Step | None:
        """Return the answer of the memory or of the sequence model, with the higher confidence."""
        written = self._answer_written(call.text, state)
        try:
            found = self._memory.near(call, state, self._sources)
        except Abstained as declined:
            missing = self._not_found(call, state)
            if missing is not None:
                return missing
            return Step(call.text, written or nothing(declined.message))
        if written is not None and written.confidence > found.answer.confidence:
            others = ((found.answer.behavior, found.answer.confidence), *found.alternatives)
            return Step(call.text, written, found.nearest, others)
        return Step(call.text, found.answer, found.nearest, found.alternatives)

    def _answer_written(self, text: str, state: State) -> Answer | None:
        """Return the sequence model's answer; None if there is no such model, or if it abstains."""
        if self._written is None:
            return None
        try:
            return self._written.answer(text, state)
        except Abstained:
            return None

    def _not_found(self, call: Call, state: State) -> Step | None:
        """Return Bash's error for a command that is in no directory of PATH."""
        name = _name_of(call, state)
        assigns = without_assignments(call.bare) != call.bare
        if name in BUILTINS or (name in KEYWORDS and not assigns) or not _COMMAND.fullmatch(name):
            return None
        path = state.before.document["env"].get("PATH", "")
        if "/" in name or name in state.before.document.get("functions", {}):
            return None
        if any(state.entry(f"{directory}/{name}") for directory in path.split(":") if directory):
            return None
        said = f"bash: line 1: {name}: command not found\n".encode()
        behavior = Behavior(127, said, stdout=b"", stderr=said)
        return Step(call.text, Answer(behavior, 0.95, "no directory of PATH holds it"))

    def _reads_the_pipe(self, call: Call, state: State) -> bool:
        taken = self.parse(call, state)
        if taken is None:
            return False
        files = any(each.kind in "fdls" for each in taken.operands)
        return any(each.kind == "x" for each in taken.operands) or not (files or taken.operands)

    def with_times(self, behavior: Behavior, state: State) -> Behavior:
        """Add the times and link counts of directories, which records omit.

        A directory whose entries were added or removed has the current time. The patch of a whole
        input omits these times, but later commands of the input need them.
        """
        fresh = self.world.made
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
        operations += _links(behavior.patch, state, told)
        if not operations:
            return behavior
        return replace(behavior, patch=ContextPatch((*behavior.patch.operations, *operations)))


def _links(patch: ContextPatch, state: State, told: Set[str]) -> list[Operation]:
    """Return the link counts of directories whose number of subdirectories changed.

    Those in the patch, listed in `told`, are left out.
    """
    files = state.before.document["fs"]
    start = os.fsencode(state.cwd)
    more: dict[str, int] = {}

    def count(name: str, change: int) -> None:
        whole = posixpath.join(start, name_bytes(name))
        above = file_key(posixpath.dirname(whole), start)
        more[above] = more.get(above, 0) + change

    for code, path, *rest in patch.operations:
        area, *names = keys(path) or [""]
        if area != "fs" or len(names) != 1 or code == "=":
            continue
        entry = rest[0] if code == "a" else files.get(names[0], {})
        if not str(entry.get("perms", "")).startswith("d"):
            continue
        count(names[0], 1 if code == "a" else -1)
        if code == "m":
            count(keys(rest[0])[1], 1)
    return [
        ("=", pointer("fs", name, "links"), files[name]["links"] + change)
        for name, change in more.items()
        if change and name in files and pointer("fs", name, "links") not in told
        and pointer("fs", name) not in told
    ]  # fmt: skip


def nothing(why: str) -> Answer:
    """Return an empty answer with a confidence of 0; `why` is its source."""
    return Answer(Behavior(0, b"", stdout=b"", stderr=b""), 0.0, f"{GUESSED}: {why}")


def _name_of(call: Call, state: State) -> str:
    """Return the name of the program that a command runs; "" if unknown."""
    word = (split_words(without_assignments(call.bare)) or [""])[0]
    if "$" not in word and "{" not in word:
        return unquoted(word)
    try:
        return "".join(Expander(Variables(state)).fields(word)[:1])
    except Abstained:
        return ""


def _is_same(one: Behavior, other: Behavior) -> bool:
    """Whether two behaviors are equal, regardless of the order of their changes."""
    changes = [{repr(each) for each in said.patch.operations} for said in (one, other)]
    return changes[0] == changes[1] and one.exit_code == other.exit_code


def _replaced(patch: ContextPatch, files: Mapping[str, Any], gone: Set[str]) -> list[str]:
    """Return the names of files that were replaced by a moved file, as by `mv`."""
    taken = [files[name] for name in gone if name in files]
    return [
        name
        for name, told in attributes(patch.operations).items()
        if name in files
        and any(all((files[name] | told)[each] == was[each] for each in KEPT) for was in taken)
    ]
