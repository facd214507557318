"""The default model: what was executed, what is put together by rule, what a memory makes of it.

Nothing is executed, no process is started, and no built system is needed. Every answer says where
it is from and how sure that is; what nobody knows is guessed, and marked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shioenv.bash.program import Program, Simple
from shioenv.bash.walk import pipelines
from shioenv.composition.call import Call
from shioenv.composition.inputs import is_asked_whole
from shioenv.composition.reading import read_program
from shioenv.composition.shell import Shell
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Answer, Runner, State
from shioenv.domain.work import answering, aside
from shioenv.errors import Abstained, ContextError, PatchError
from shioenv.model.commands import EXACT, GUESSED, Commands, Step, VersionedGuesser, nothing
from shioenv.model.memory.memory import Memory
from shioenv.system.world import World


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
        written: VersionedGuesser | None = None,
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
        self._commands = Commands(
            memory, self.world, written=written, stages=stages, stages_name=stages_name
        )
        self._beside = f", stages by {stages_name}" if stages else ""
        self._beside += f", beside {written.version}" if written else ""
        self._stages_name = stages_name
        self._reached: dict[tuple[str, tuple[str, ...]], State] = {}

    @property
    def version(self) -> str:
        """What exactly it is, in every result."""
        name, system = self.card.get("name", "memory"), self.card.get("system_digest", "")
        least = f", sure of {self.abstain_below:g}" if self.abstain_below else ""
        records = f"{len(self.memory.index)} records of system {system[:12]}"
        where = "" if self.world is self.memory.world else ", asked about another machine"
        return f"{name} {self.memory.digest}, {records}{self._beside}{least}{where}"

    @property
    def steps(self) -> list[Step]:
        """What the newest answer rests on, command by command."""
        return self._commands.steps

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
        self._commands.steps = []
        answer = self._answered(shell_input, start)
        if answer.confidence < self.abstain_below:
            raise Abstained(
                f"{shell_input!r:.60} is answered with a confidence of {answer.confidence:.2f}, "
                f"below {self.abstain_below:g}: {answer.source}"
            )
        if self._commands.used_stages:
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
                self._commands.steps = []
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
        """What is in the files that an input wrote, by name. A file is there where one of the
        input's commands printed its content, by itself or behind what was there.
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
            self.steps.append(Step(text, exact, ((text, 0.0),), asked=(EXACT,)))
            return exact
        try:
            program = read_program(text)
            words = _words(program) if is_asked_whole(text) else ()
            if words:
                self._commands.answer_call(Call(text, parts=words), state, looked_up=True)
                return self.steps[-1].answer
            answer = Shell(self._commands, state, text).answer(program)
        except RecursionError:
            return self._guess(text, state, "the input is nested too deeply to be put together")
        except Abstained as declined:
            return self._guess(text, state, declined.message)
        except (PatchError, ContextError) as misfit:
            return self._guess(text, state, misfit.message)
        single = len(self.steps) == 1 and self.steps[-1].input == text
        return self.steps[-1].answer if single else answer

    def _guess(self, text: str, state: State, why: str) -> Answer:
        """The best guess for what cannot be put together."""
        try:
            found = self.memory.near(Call.parse(text), state)
        except (Abstained, PatchError, ContextError):
            return nothing(why)
        answer = replace(found.answer, confidence=0.0, source=f"{GUESSED}: {why}")
        self.steps.append(Step(text, answer, found.nearest, found.alternatives, (GUESSED,)))
        return answer


def _words(program: Program) -> tuple[str, ...]:
    """Assignments and words of a program that is one command; nothing where it calls none."""
    for pipeline in pipelines(program):
        for command in pipeline.stages:
            if isinstance(command, Simple) and command.words:
                return (*command.assignments, *command.words)
    return ()
