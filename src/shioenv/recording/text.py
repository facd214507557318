"""The score of an input given as text: its arguments found, its sub-inputs run on a system."""

from __future__ import annotations

import re
from dataclasses import dataclass

from shioenv.bash.words import without_assignments
from shioenv.behavior.observe import open_sandbox
from shioenv.domain.inputs import Input
from shioenv.domain.runner import Runner, State
from shioenv.grammar.library import load_grammars, names_of_grammars
from shioenv.grammar.parse import InputParser, command_place
from shioenv.irreducibility.score import Score, estimate_irreducibility
from shioenv.irreducibility.scoring import Scoring
from shioenv.sandbox.base import Limits
from shioenv.seeding import generator
from shioenv.system.store import System, find_system


@dataclass(frozen=True, slots=True)
class Reading:
    """A line with its arguments told apart, and what nobody could be sure of."""

    input: Input
    unknown: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Commands by whose grammar was read, each with the options that it does not have. A word
    behind such an option may be its value, and is read as an argument of its own.
    """
    words: tuple[str, ...] = ()
    """Commands without a grammar: every word is an argument."""

    @property
    def notes(self) -> list[str]:
        """What a reader may want to know, a line each; none where the grammars know everything."""
        return [
            f"{command} has no {', '.join(options)}: each is read as an option without a value"
            for command, options in self.unknown
        ] + [
            f"{command or 'an input'} has no grammar: every word is an argument"
            for command in self.words
        ]


def read_arguments(text: str, system: System | None = None) -> Reading:
    """The input that a line is, with its arguments told apart.

    By the grammar of each command where there is one (in the version that `system` has), by shell
    words otherwise. Never fails: what bash will refuse is an input too.
    """
    words = {word.rpartition("/")[2] for word in re.findall(r"[\w./-]+", text)}
    names = [name for name in names_of_grammars() if name in words or name.split("-")[0] in words]
    parser = InputParser(load_grammars(names, versions=system.versions if system else None))
    shell_input = parser.parse(text)
    unknown, by_words = [], []
    for segment in shell_input.segments:
        command = without_assignments(segment.command)
        grammar = parser.grammar(command, [argument.text for argument in segment.arguments])
        if grammar is None:
            by_words.extend([command] if segment.arguments else [])
            continue
        own = segment.arguments[: command_place(grammar, segment.arguments)]
        if options := parser.splitter(grammar).unknown(own):
            unknown.append((command, tuple(options)))
    return Reading(shell_input, tuple(unknown), tuple(by_words))


def score(
    shell_input: str | Input,
    *,
    system: str | System | None = None,
    cwd: str | None = None,
    scoring: Scoring = Scoring(),
    seed: int = 0,
    limits: Limits | None = None,
    explain: bool = True,
    runner: Runner | None = None,
) -> Score:
    """The irreducibility of an input on a system, with each argument's own effect.

    Exact where the budget covers every sub-input, else estimated from so many of them at most,
    drawn by `seed` (`estimate_irreducibility`). `cwd` is a start directory. A sandbox is opened for
    the call unless a `runner` is given, any that answers. `limits` are the runner's own then.
    `system` says by whose version of a command its arguments are told. Errors: UsageError, and
    those of `open_sandbox` and the runner.
    """
    if runner is None:
        with open_sandbox(system, limits) as opened:
            return score(
                shell_input, system=opened.system, cwd=cwd, scoring=scoring, seed=seed,
                explain=explain, runner=opened,
            )  # fmt: skip
    if isinstance(shell_input, str):
        built = find_system(system) if isinstance(system, str) else system
        shell_input = read_arguments(shell_input, built).input
    state = None if cwd is None else State(cwd=cwd)
    return estimate_irreducibility(
        shell_input,
        lambda text: runner.run(text, state),
        scoring,
        rng=generator(seed, "score"),
        explain=explain,
        cache={},
    )
