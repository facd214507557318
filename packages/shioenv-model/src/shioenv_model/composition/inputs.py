"""Inputs of several commands, answered from answers about each command.

The answers are put together by Bash's rules. Nothing is executed here, and nothing is learned.
"""

from __future__ import annotations

import re

from shioenv.bash.normal import is_one_command
from shioenv.bash.program import Simple
from shioenv.bash.walk import pipelines
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Answer, Runner, State, answer_of
from shioenv.errors import Abstained
from shioenv_model.bash.work import answering
from shioenv_model.composition.reading import read_program, read_source
from shioenv_model.composition.shell import Walk

_KEPT = re.compile(r"\$\{?\?|PIPESTATUS")
"""The last status."""

_OF_START = re.compile(
    r"OLDPWD|~-|\bcd\b.*\s['\"]?-['\"]?(?![-\w])|\$\{?_(?!\w)|BASH_EXECUTION_STRING"
)
"""What a shell's start decides: where it was before, the last argument, its command line."""


class Composition:
    """A runner over a runner that answers single commands.

    The runner below answers an input of one command. Of any other input each simple command is
    asked about in the state that the commands before it left. Their files, working directory and
    variables are in `State`. What is piped into a command is its standard input. `start` is the
    pristine state.
    """

    def __init__(self, runner: Runner, start: State) -> None:
        self._runner, self._start = runner, start

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """What the input does.

        Errors: Abstained for what Bash refuses to read, and for what cannot be put together by
        rule; those of the runner below, Abstained included.
        """
        return self.answer(shell_input, state).behavior

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        """What `run` says, with a confidence: the product of the commands' confidences."""
        start = state or self._start
        with answering(shell_input):
            program = read_program(shell_input)
            try:
                if is_asked_whole(shell_input) and not asks_what_was_kept(shell_input, start):
                    return answer_of(self._runner, shell_input, start)
                return Walk(self._runner, start, shell_input).answer(program)
            except RecursionError:
                raise Abstained("the input is nested too deeply to be put together") from None


def asks_what_was_kept(text: str, state: State) -> bool:
    """Whether the text may name what the shell has from its start, or keeps of the history."""
    return asks_of_start(text) or bool(state.history and _KEPT.search(text))


def asks_of_start(text: str) -> bool:
    """Whether the text may name what a shell has from its start (D-27).

    Records made before D-27 show a `cd` there, so they do not answer such texts.
    """
    return _OF_START.search(text) is not None


def is_asked_whole(text: str) -> bool:
    """Whether there is nothing to put together, so that the runner is asked about the whole text.

    The text is a single command (`is_single`), no expression, and no `find -exec`. False where the
    text cannot be read.
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
