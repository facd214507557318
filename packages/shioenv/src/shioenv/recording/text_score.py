"""Score an input given as text: parse its arguments, then run its sub-inputs on a system."""

from __future__ import annotations

import re
from dataclasses import dataclass

from shioenv.bash.words import without_assignments
from shioenv.behavior.observe import open_sandbox
from shioenv.domain.inputs import Input
from shioenv.domain.runner import Runner, State
from shioenv.grammar.library import (
    OwnGrammars,
    grammars_of_system,
    load_grammars,
    names_of_grammars,
)
from shioenv.grammar.parse import InputParser, command_place
from shioenv.irreducibility.score import Score, estimate_irreducibility
from shioenv.irreducibility.scoring import Scoring
from shioenv.sandbox.base import Limits
from shioenv.seeding import generator
from shioenv.system.store import System, find_system


@dataclass(frozen=True, slots=True)
class Reading:
    """A parsed line, with notes on uncertain arguments."""

    input: Input
    unknown: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Commands with options that their grammar lacks, each with these options. A word after such an
    option may be the option's value, but is parsed as a separate argument."""
    words: tuple[str, ...] = ()
    """Commands with arguments but without a grammar. Each of their words is parsed as an
    argument."""

    @property
    def notes(self) -> list[str]:
        """Return a note on each uncertain argument; none if the grammars cover everything."""
        return [
            f"{command} has no option {', '.join(options)}; assumed to take no value"
            for command, options in self.unknown
        ] + [
            f"{command or 'an input'} has no grammar: each word is one argument"
            for command in self.words
        ]


def read_arguments(
    text: str, system: System | None = None, own: OwnGrammars | None = None
) -> Reading:
    """Parse a line of shell into an input with its arguments.

    A command's arguments are parsed with its grammar for `system`; `own` grammars take precedence
    over the shipped ones. Without a grammar, every shell word is an argument. Never fails: a line
    that bash will refuse is an input too.
    """
    words = {word.rpartition("/")[2] for word in re.findall(r"[\w./-]+|[\[:]", text)}
    own = own or (grammars_of_system(system.name) if system else None)
    known = names_of_grammars(own=own)
    names = [name for name in known if name in words or name.split("-")[0] in words]
    host_clock = system is not None and system.host_clock
    parser = InputParser(load_grammars(names, host_clock=host_clock, own=own))
    shell_input = parser.parse(text)
    unknown, by_words = [], []
    for segment in shell_input.segments:
        command = without_assignments(segment.command)
        grammar = parser.grammar(command, [argument.text for argument in segment.arguments])
        if grammar is None:
            by_words.extend([command] if segment.arguments else [])
            continue
        before = segment.arguments[: command_place(grammar, segment.arguments)]
        if options := parser.splitter(grammar).unknown(before):
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
    """Return the irreducibility of an input on a system, with each argument's effect.

    The score is exact if the budget covers every sub-input. Otherwise it is estimated from at most
    `budget` sub-inputs, drawn with `seed` (`estimate_irreducibility`). `cwd` is a start directory;
    None for the system's first one. `runner` may be any runner. Without a runner, a sandbox of
    `system` with these `limits` is opened for the call. With a runner, `limits` are not used, and
    `system` only determines the grammars. Errors: UsageError, and those of `open_sandbox`
    and the runner.
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
