"""The default model: recorded inputs, composition by rule, and a memory for single commands.

Nothing is executed, no process is started, and no built system is needed. Every answer names its
source and has a confidence. An answer without support is a guess, and marked as such.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from threading import RLock
from typing import TYPE_CHECKING, Any

from shioenv.bash.normal import InputForms
from shioenv.bash.program import Program, Simple
from shioenv.bash.scan import Refused
from shioenv.bash.walk import pipelines
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import with_contents
from shioenv.domain.runner import Answer, Carried, Runner, State
from shioenv.errors import Abstained, ContextError, PatchError
from shioenv.text import short_repr
from shioenv_model.bash.work import answering, aside
from shioenv_model.composition.call import Call
from shioenv_model.composition.composed_inputs import (
    answer_broken,
    is_single_query,
    uses_start_values,
)
from shioenv_model.composition.program_evaluation import Walk
from shioenv_model.composition.reading import read_program
from shioenv_model.composition.simple import CARRYING, is_walked
from shioenv_model.confidence import calibrated
from shioenv_model.memory.memory import Memory
from shioenv_model.memory.sources import ALL, Sources
from shioenv_model.memory.world import World
from shioenv_model.rules.registry import Step
from shioenv_model.single_commands import EXACT, GUESSED, Commands, VersionedGuesser, nothing

if TYPE_CHECKING:
    from shioenv.live.model_shell import ModelShell


class Model:
    """Answers any input: from a record of the input, else by composing answers for its commands.

    A command is answered from a record of the command, else predicted by the memory. Threads may
    call it concurrently: the model answers one question at a time.

    - `card`: the model's metadata.
    - `written`: a sequence model in addition to the memory. The answer with the higher confidence
      is used.
    - `stages`: a runner for commands that read a pipe, whose text is in `State.stdin`. Answers for
      which it was used name it as `stages_name`.
    - `abstain_below`: the model abstains below this confidence, 0 to 1; 0: it never abstains.
    - `world`: the machine for which it answers (default: the memory's).
    - `sources`: the sources of answers, in addition to Bash's own rules (default: all).
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
        sources: Sources = ALL,
    ) -> None:
        self.memory = memory
        self.sources = sources
        """The sources of answers, in addition to Bash's own rules."""
        self.world = world or memory.world
        """The machine for which commands are answered."""
        self.abstain_below = abstain_below
        self.card = dict(card or {})
        """The model's metadata."""
        self._commands = Commands(
            memory, self.world, written=written, stages=stages, stages_name=stages_name,
            sources=sources,
        )  # fmt: skip
        self._beside = f", stages by {stages_name}" if stages else ""
        self._beside += f", beside {written.version}" if written else ""
        self._stages_name = stages_name
        self._turn = RLock()
        self._reached: dict[tuple[str, tuple[str, ...]], tuple[State, float]] = {}

    def __repr__(self) -> str:
        facts = {"name": self.card.get("name", "memory"), "system": self.system}
        return short_repr(self, {**facts, "digest": self.memory.digest})

    @property
    def version(self) -> str:
        """The model's exact identity, as named in every result."""
        name, system = self.card.get("name", "memory"), self.card.get("system_digest", "")
        least = f", sure of {self.abstain_below:g}" if self.abstain_below else ""
        records = f"{len(self.memory.index)} records of system {system[:12]}"
        where = "" if self.world is self.memory.world else ", asked about another machine"
        beside = f"{self.sources}{self._beside}"
        return f"{name} {self.memory.digest}, {records}{beside}{least}{where}"

    @property
    def system(self) -> str | None:
        """The name of the system on which the model was trained; None if the card names none."""
        return self.card.get("system")

    @property
    def steps(self) -> list[Step]:
        """The steps of the newest answer, one per command."""
        return self._commands.steps

    @property
    def training(self) -> InputForms:
        """The model's training inputs."""
        return self.memory.index.training

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return only the behavior."""
        return self.answer(shell_input, state).behavior

    def session(self, cwd: str | None = None) -> ModelShell:
        """Return a shell whose lines the model answers in turn."""
        from shioenv.live.model_shell import ModelShell

        return ModelShell(self, self.world.state(cwd or self.world.start))

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        """Return the behavior with a confidence: the expected accuracy of such answers.

        Without support, the answer is the best guess: its source begins with `guessed`, and its
        confidence is 0. If the state has no context, the inputs of its history are answered first.
        The returned confidence is at most the lowest one of these answers. Errors: Abstained below
        `abstain_below`, and for too much work.
        """
        with self._turn, answering(shell_input):
            return self._answer(shell_input, state)

    def _answer(self, shell_input: str, state: State | None) -> Answer:
        start, sure = self._led(state)
        self._commands.steps = []
        answer = self._answered(shell_input, start)
        behavior = answer.behavior
        files = start.before.document["fs"]
        patch = with_contents(behavior.patch, behavior.content_digests, files.get)
        behavior = replace(behavior, patch=patch)
        answer = replace(answer, behavior=behavior, confidence=min(answer.confidence, sure))
        if answer.confidence < self.abstain_below:
            raise Abstained(
                f"{shell_input!r:.60} is answered with a confidence of {answer.confidence:.2f}, "
                f"below {self.abstain_below:g}: {answer.source}"
            )
        if not answer.written:
            answer = replace(answer, written=self._written(shell_input, answer.behavior, start))
        if self._commands.used_stages:
            return replace(answer, source=f"{answer.source}; stages by {self._stages_name}")
        return answer

    def reached(self, state: State | None) -> State:
        """Return the state with the context that its history leads to, as far as it is known."""
        with self._turn:
            return self._led(state)[0]

    def _led(self, state: State | None) -> tuple[State, float]:
        """Return the state of `reached`, and the lowest confidence of answers for the history."""
        world = self.world
        placed = world.placed(state)
        if placed.context is not None or not placed.history:
            return placed, 1.0
        key = placed.cwd, placed.history
        if key not in self._reached:
            here, sure = world.state(placed.cwd), 1.0
            for text in placed.history:
                self._commands.steps = []
                with aside(text):
                    answer = self._answered(text, here)
                behavior, sure = answer.behavior, min(sure, answer.confidence)
                written = answer.written or self._written(text, behavior, here)
                try:
                    dated = self._commands.with_times(behavior, here)
                    here = here.after(text, dated, written, answer.carried)
                except PatchError:
                    here = here.after(text, replace(behavior, patch=type(behavior.patch)()))
            if len(self._reached) > 64:
                self._reached.clear()
            self._reached[key] = here, sure
        here, sure = self._reached[key]
        return replace(here, stdin=placed.stdin), sure

    def _written(self, text: str, behavior: Behavior, before: State) -> dict[str, bytes]:
        """Return the contents of the files that an input wrote, by name, as far as known.

        A content is known if a command of the input printed all of it, or the part appended to the
        old content. The content of a file that the input names is known as well.
        """
        if not behavior.content_digests:
            return {}
        named = (before.read(word.strip("'\"")) for word in text.split() if "\0" not in word)
        printed = [b"", *(content for content in named if content is not None)]
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
        if state.carried.ended:
            behavior = Behavior(state.status, b"", stdout=b"", stderr=b"")
            return Answer(behavior, 1.0, "the shell has ended", carried=state.carried)
        answer = self._found(text, state)
        return replace(answer, confidence=calibrated(text, answer, self.steps))

    def _found(self, text: str, state: State) -> Answer:
        """Return the answer. Its confidence assumes that rules are never wrong."""
        exact = self.memory.exact(text, state) if self.sources.records else None
        if exact is not None:
            carried = self._carried(text, state)
            self.steps[:] = [Step(text, exact, ((text, 0.0),), asked=(EXACT,))]
            return replace(exact, carried=carried)
        try:
            options = {} if state.context is None else state.before.document["shell_options"]
            program = read_program(text, extended=bool(options.get("extglob")))
            # a leading comment or blank line changes the line number in error messages
            first = text.lstrip(" \t")[:1] not in ("#", "\n")
            alone = first and is_single_query(text) and not uses_start_values(text)
            words = _words(program) if alone and state.context is None else ()
            if words and not is_walked(words):
                self._commands.answer_call(Call(text, parts=words), state, looked_up=True)
                return self.steps[-1].answer
            answer = Walk(self._commands, state, text).answer(program)
        except RecursionError:
            return self._guess(text, state, "the input is nested too deeply to be put together")
        except Refused as refused:
            broken = answer_broken(self._commands, refused, text, state)
            return broken or self._guess(text, state, refused.message)
        except Abstained as declined:
            return self._guess(text, state, declined.message)
        except (PatchError, ContextError) as misfit:
            return self._guess(text, state, misfit.message)
        if len(self.steps) == 1 and self.steps[-1].input == text:
            said = self.steps[-1].answer
            return replace(answer, confidence=said.confidence, source=said.source)
        return answer

    def _carried(self, text: str, state: State) -> Carried | None:
        """Return the shell state outside the context after a recorded input.

        None if no builtin in the input changes this state, or if the input cannot be evaluated.
        """
        if not CARRYING.search(text):
            return None
        try:
            return Walk(self._commands, state, text).answer(read_program(text)).carried
        except (Abstained, PatchError, ContextError, RecursionError):
            return None

    def _guess(self, text: str, state: State, why: str) -> Answer:
        """Return the best guess for an input that cannot be composed."""
        try:
            found = self.memory.near(Call.parse(text), state, self.sources)
        except (Abstained, PatchError, ContextError):
            return nothing(why)
        answer = replace(found.answer, confidence=0.0, source=f"{GUESSED}: {why}")
        self.steps.append(Step(text, answer, found.nearest, found.alternatives, (GUESSED,)))
        return answer


def _words(program: Program) -> tuple[str, ...]:
    """Return assignments and words of a program with one command; empty if it runs nothing."""
    for pipeline in pipelines(program):
        for command in pipeline.stages:
            if isinstance(command, Simple) and command.words:
                return (*command.assignments, *command.words)
    return ()
