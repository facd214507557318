"""Answers for inputs of several commands, composed from answers for each command.

The composition follows Bash's rules. Nothing is executed or learned here.
"""

from __future__ import annotations

import re
from dataclasses import replace

from shioenv.bash.normal import is_one_command
from shioenv.bash.program import Simple
from shioenv.bash.scan import Refused
from shioenv.bash.walk import pipelines
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Answer, Runner, State, answer_of
from shioenv.errors import Abstained
from shioenv_model.bash.work import answering
from shioenv_model.composition.program_evaluation import Walk
from shioenv_model.composition.reading import REFUSED, broken, read_program, read_source

_REFUSED = "a syntax error of Bash, by rule"
_KEPT = re.compile(r"\$\{?\?|PIPESTATUS")
"""References to the last exit status."""

_OF_START = re.compile(
    r"OLDPWD|~-|\bcd\b.*\s['\"]?-['\"]?(?![-\w])|\$\{?_(?!\w)|BASH_EXECUTION_STRING"
)
"""References to values set at a shell's start: `OLDPWD`, `$_`, and its command line."""


class Composition:
    """A runner that composes the answers of another one for single commands.

    This inner runner answers an input of one command directly. For any other input, it is queried
    about each simple command, in the state left by the previous ones. This `State` contains files,
    working directory and variables; its standard input is the data piped into the command. `start`
    is the pristine state.
    """

    def __init__(self, runner: Runner, start: State) -> None:
        self._runner, self._start = runner, start

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return the behavior of the input.

        Errors: Abstained for syntax that Bash rejects, and for inputs that cannot be composed by
        rule; those of the inner runner, Abstained included.
        """
        return self.answer(shell_input, state).behavior

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        """Return the behavior with a confidence: the product of the commands' confidences."""
        start = state or self._start
        with answering(shell_input):
            program = read_program(shell_input)
            try:
                if is_single_query(shell_input) and not uses_shell_values(shell_input, start):
                    return answer_of(self._runner, shell_input, start)
                return Walk(self._runner, start, shell_input).answer(program)
            except RecursionError:
                raise Abstained("the input is nested too deeply to be put together") from None


def answer_broken(runner: Runner, refused: Refused, text: str, state: State) -> Answer | None:
    """Return the answer for a text with invalid syntax; None if no rule applies.

    It has the effects of the lines before the faulty command, then Bash's error.
    """
    found = broken(refused, text)
    if found is None:
        return None
    data = found.message("bash: -c: ", sum(1 + each.count("\n") for each in state.history))
    if not found.program:
        return Answer(Behavior(2, data, stdout=b"", stderr=data), REFUSED, _REFUSED)
    try:
        answer = Walk(runner, state, text).answer(found.program)
    except Abstained:
        return None
    if answer.carried is not None and answer.carried.ended:
        return answer
    behavior = replace(answer.behavior, exit_code=2, output=answer.behavior.output + data)
    return replace(answer, behavior=behavior, confidence=answer.confidence * REFUSED)


def uses_shell_values(text: str, state: State) -> bool:
    """Whether the text may use the shell's start values, or values kept from the history."""
    return uses_start_values(text) or bool(state.history and _KEPT.search(text))


def uses_start_values(text: str) -> bool:
    """Whether the text may use values set at a shell's start.

    Records of such texts are not used: before decision D-27, a `cd` was executed before the input,
    and these values show it.
    """
    return _OF_START.search(text) is not None


def is_single_query(text: str) -> bool:
    """Whether the runner can be queried about the whole text, without composition.

    True for a single command (`is_single`) other than `[[ … ]]`, `(( … ))` and `find -exec`. False
    for a text that cannot be parsed.
    """
    try:
        source = read_source(text)
    except Abstained:
        return False
    return is_one_command(source) and all(
        isinstance(command, Simple)
        and not (command.words[:1] == ("find",) and "-exec" in command.words)
        for pipeline in pipelines(source.program)
        for command in pipeline.stages
    )
