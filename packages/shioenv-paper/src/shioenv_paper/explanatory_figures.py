"""The paper's figures of its method, drawn from actual behavior on a system.

Three pictures, each as SVG for a light and a dark page:

- the life of an input: from state and action through production and execution to its score
- the expansion of one of an input's options (`Option`)
- the files available to a session
"""

from __future__ import annotations

import posixpath
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.inputs import Argument, Input
from shioenv.domain.readable import changes
from shioenv.domain.runner import State
from shioenv.errors import SamplesExhaustedError
from shioenv.grammar.bind import bind
from shioenv.grammar.library import load_grammar
from shioenv.grammar.symbols import Grammar, Nonterminal, Production, show_argument
from shioenv.irreducibility.score import Score
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.text_score import score
from shioenv.seeding import generator
from shioenv.synthesis.derivation import PartialInput
from shioenv.synthesis.policy import Choices, Policy, WeightedPolicy
from shioenv.synthesis.samplers import united
from shioenv.system.catalogue import catalogue
from shioenv.system.store import System
from shioenv_eval.report.chart_style import ACCENT, GRID, INK, MAIN, MUTED, SOFT, write_pictures

COMMAND: Final = "df"
"""The command with the shown option, as in Section 3.2."""

LIVED: Final = "mkdir"
"""The command of the input whose life is shown.

Its inputs change files, can print, and have options that do not change the behavior.
"""

ATTEMPTS: Final = 2000
"""Maximum number of derivations drawn until one has a suitable input."""

ARGUMENTS: Final = (2, 3)
"""Minimum and maximum number of arguments of a shown input, both options and operands."""

CHAINED: Final = 5
"""Maximum number of productions of the argument whose derivation is drawn."""

FEWEST_CHAINED: Final = 3

BESIDE: Final = 5
"""Maximum number of productions shown of each nonterminal."""

STEPS: Final = (4, 12)
"""Minimum and maximum number of productions of the shown derivation."""

WIDTH: Final = 860
"""Width of a picture, in pixels."""
NARROW: Final = 416
"""Width of a picture that is legible on a phone, in pixels."""
LINE: Final = 20
"""Height of a line, in pixels."""

STRONG: Final = {"class": "strong"}

COLUMNS: Final = 3
"""Columns of a file tree."""

LONGEST: Final = 108
"""Maximum number of characters of a line."""
BRIEF: Final = 52
"""Maximum number of characters of a line in a narrow picture."""

SHOWN: Final = 6
"""Maximum number of alternatives of a nonterminal, lines of an output, or contrasts shown."""


@dataclass
class Picture:
    """Lines, boxes and texts that form an SVG."""

    title: str
    width: int = WIDTH
    parts: list[str] = field(default_factory=list)
    bottom: float = 0.0

    def text(self, x: float, y: float, text: str, colour: str = INK, **style: str) -> None:
        """Add a line of text, cut after `LONGEST` characters; its baseline is `y`."""
        more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in style.items())
        content = escape(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")
        self.parts.append(f'<text x="{x:g}" y="{y:g}" fill="{colour}"{more}>{content}</text>')
        self.bottom = max(self.bottom, y + 8)

    def heading(self, x: float, y: float, number: int, text: str) -> None:
        """Add a numbered heading."""
        self.parts.append(
            f'<circle cx="{x + 11:g}" cy="{y - 5:g}" r="10" fill="none" stroke="{MAIN}"/>'
        )
        self.parts.append(
            f'<text x="{x + 11:g}" y="{y:g}" fill="{MAIN}" text-anchor="middle" '
            f'class="strong">{number}</text>'
        )
        self.text(x + 32, y, text, INK, **{"class": "heading"})

    def code(self, x: float, y: float, text: str, colour: str = INK) -> None:
        """Add a line of monospaced text that preserves blanks."""
        self.text(x, y, text, colour, **{"class": "code", "xml:space": "preserve"})

    def state(self, x: float, y: float, text: str) -> None:
        """Add a partial input, with its nonterminals in a different colour."""
        spans = re.sub(
            "(&lt;.*?&gt;)", rf'<tspan fill="{MAIN}">\1</tspan>', escape(text, quote=False)
        )
        self.code(x, y, "")
        self.parts[-1] = self.parts[-1].replace("></text>", f">{spans}</text>")

    def box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """Add a frame with rounded corners."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" '
            f'fill="{colour}" fill-opacity="0.4" stroke="{colour}"/>'
        )
        self.bottom = max(self.bottom, y + height + 4)

    def line(self, points: Sequence[tuple[float, float]], colour: str = MUTED) -> None:
        """Add a line through points."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')

    @property
    def svg(self) -> str:
        """The picture as SVG, in colours for a light page."""
        height = self.bottom + 12
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {height:g}" '
            f'width="{self.width}" height="{height:g}" role="img">\n'
            f"<title>{escape(self.title)}</title>\n"
            "<style>text{font:13px Helvetica,Arial,Liberation Sans,sans-serif}"
            ".strong{font-weight:bold}.heading{font-size:15px;font-weight:bold}"
            ".code{font:12px DejaVu Sans Mono,Menlo,Consolas,monospace}</style>\n"
            f"{body}\n</svg>\n"
        )


@dataclass(frozen=True, slots=True)
class Derived:
    """An input with its derivation steps and its score."""

    steps: tuple[OptionStep, ...]
    start: PartialInput
    input: Input
    score: Score


def derived(machine: SandboxRunner, command: str, seed: int, *, brief: bool = False) -> Derived:
    """Return a suitable input: short, with exit code 0, and every part derived by an actual step.

    A `brief` input fits a narrow picture, changes something, and has an argument that does not
    matter. Errors: SamplesExhaustedError if none of `ATTEMPTS` inputs is suitable; those of
    sandboxes.
    """
    options = Options(united([bound(command, machine.system)]), WeightedPolicy())
    start = PartialInput.initial(bound(command, machine.system).start)
    random = generator(seed, "figures")
    cwd = machine.system.declaration.start_directory
    for _ in range(ATTEMPTS):
        steps = tuple(_derivation(options, start, random))
        if not STEPS[0] <= len(steps) <= STEPS[1] or steps[-1].state.leftmost is not None:
            continue
        word, *arguments = steps[-1].state.words
        written = Input.single(word, map(Argument.parse, arguments))
        kinds = {argument.startswith("-") for argument in arguments}
        if not ARGUMENTS[0] <= written.n_arguments <= ARGUMENTS[1] or len(kinds) < 2:
            continue
        behavior = machine.run(written.text, State(cwd=cwd))
        lines = behavior.text.splitlines()
        fits = 0 < len(lines) <= SHOWN and max(map(len, lines)) <= (BRIEF if brief else LONGEST)
        if behavior.exit_code != 0 or not fits or (brief and not behavior.patch.operations):
            continue
        scored = score(written, runner=machine, cwd=cwd, scoring=Scoring(budget=64))
        made = Derived(steps, start, written, scored)
        if not brief and len(argument_steps(made)) < FEWEST_CHAINED:
            continue
        if not brief or (
            len({*arguments}) == len(arguments)
            and 0 < (scored.irreducibility or 0) < 1
            and all(len(line) <= BRIEF for line in derivation_states(made))
        ):
            return made
    raise SamplesExhaustedError(
        f"none of {ATTEMPTS} sampled inputs of {command} fits into the figure",
        hint="try another --seed",
    )


def bound(command: str, system: System) -> Grammar:
    """Return the command's grammar, bound to the names of a system."""
    return bind(load_grammar(command), catalogue(system))


def _derivation(options: Options, state: PartialInput, random: Random) -> Iterator[OptionStep]:
    for _ in range(STEPS[1] + 1):
        if state.leftmost is None:
            return
        step = options[state.leftmost].step(state, random)
        yield step
        state = step.state


def format_partial_input(state: PartialInput) -> str:
    """Return a partial input as a line, with nonterminals in angle brackets."""
    return " ".join(show_argument(argument) for argument in state.arguments)


def derivation_states(made: Derived) -> list[str]:
    """Return the states of a derivation that completed a word, from the first to the input."""
    lines: list[str] = []
    words = -1
    for state in (made.start, *(step.state for step in made.steps)):
        finished = sum(map(_finished, state.arguments))
        if finished > words or state.leftmost is None:
            lines.append(
                format_partial_input(state).replace(f"<{made.input.segments[0].command}:", "<")
            )
        words = max(words, finished)
    return lines


def _finished(argument: Sequence[object]) -> bool:
    return not any(isinstance(symbol, Nonterminal) for symbol in argument)


def life(made: Derived) -> Picture:
    """Draw the derivation of an input, its behavior, and the relevance of its arguments."""
    picture = Picture("The life of an input: sampled, executed, scored", NARROW)
    x, y = 16.0, 30.0
    picture.heading(x, y, 1, "A grammar generates an input")
    y += 4
    for line in derivation_states(made):
        y += LINE + 2
        picture.state(x + 12, y, line)
    y += 2 * LINE + 6
    picture.heading(x, y, 2, "A pristine machine executes it")
    behavior = made.score.behavior
    rows = [(f"$ {made.input.text}", ACCENT)]
    rows += [(line, INK) for line in behavior.text.splitlines()]
    rows += [(f"exit code {behavior.exit_code}", MUTED)]
    for change in changes(behavior.patch.operations):
        rows.append((f"{change.verb} {change.name}", MUTED))
    picture.box(x, y + 12, NARROW - 2 * x, LINE * len(rows) + 14, GRID)
    y += 14
    for line, colour in rows:
        y += LINE
        picture.code(x + 12, y, line, colour)
    y += 2 * LINE + 10
    picture.heading(x, y, 3, "It runs again without some arguments")
    y += 4
    for contrast in [one for part in made.score.segments for one in part.contrasts][:SHOWN]:
        y += LINE + 2
        difference = contrast.difference
        same = difference is None
        said = f"other {difference.channel.value.replace('_', ' ')}" if difference else "the same"
        picture.code(x + 12, y, contrast.text, MUTED if same else INK)
        picture.text(NARROW - x - 12, y, said, MUTED if same else MAIN, text_anchor="end")
    y += LINE + 12
    picture.text(x + 12, y, f"irreducibility {made.score.irreducibility:.3f}", INK, **STRONG)
    for line in ("is the share of these that behave differently,", "weighted by their length"):
        y += LINE
        picture.text(x + 12, y, line, MUTED)
    return picture


def argument_steps(made: Derived) -> Sequence[OptionStep]:
    """Return the most consecutive steps, up to `CHAINED`, that derive one argument with a `=`."""
    states = (made.start, *(step.state for step in made.steps))
    derived: dict[int, list[OptionStep]] = {}
    for state, step in zip(states, made.steps, strict=False):
        place = next(number for number, it in enumerate(state.arguments) if not _finished(it))
        if step.production.body or place in derived:
            derived.setdefault(place, []).append(step)
    few = [
        steps
        for place, steps in derived.items()
        if len(steps) <= CHAINED and "=" in show_argument(made.steps[-1].state.arguments[place])
    ]
    return max(few, key=len, default=())


def option(made: Derived, grammar: Grammar) -> Picture:
    """Draw the productions that derive one argument, their alternatives, and the states between.

    An option runs until another nonterminal is leftmost; then that nonterminal's option runs.
    """
    steps = argument_steps(made)
    place = made.steps.index(steps[0])
    picture = Picture("An argument, derived by the options of several nonterminals")
    x, y = 20.0, 28.0
    picture.text(x, y, "an argument begins", MUTED)
    y += LINE
    picture.code(x, y, format_partial_input(made.steps[place - 1].state if place else made.start))
    for number, chosen in enumerate(steps, 1):
        productions = grammar.productions[chosen.nonterminal]
        total = sum(production.weight for production in productions) or 1.0
        first = [one for one in productions if one == chosen.production]
        others = [one for one in productions if one != chosen.production][: BESIDE - 1]
        y += LINE + 14
        said = f"{number}. the option of {chosen.nonterminal} chooses one of {len(productions)}"
        picture.text(x, y, f"{said} production{'s' * (len(productions) > 1)}", MUTED)
        trunk = y + 8
        for production in (*first, *others):
            y += LINE
            taken = production == chosen.production
            colour = ACCENT if taken else INK
            body = " ".join(map(show_argument, production.body)) or "nothing"
            line = [(x + 6, trunk), (x + 6, y - 4), (x + 26, y - 4)]
            picture.line(line, colour if taken else SOFT)
            picture.code(x + 32, y, f"{production.weight / total:5.1%}  {body}", colour)
        left = len(productions) - len(first) - len(others)
        if left:
            y += LINE
            picture.code(x + 32, y, f"       and {left} more", MUTED)
        y += LINE + 14
        ends = "ends here" if chosen.terminated else "continues"
        done = "; the argument is complete" if chosen is steps[-1] else ""
        picture.text(x, y, f"the next state; the option {ends}{done}", MUTED)
        y += LINE
        picture.code(x, y, format_partial_input(chosen.state))
    return picture


def draw_file_tree(system: System, *, depth: int = 2, most: int = 120) -> Picture:
    """Draw the files of the start directory: `depth` directory levels, at most `most` lines."""
    top = system.resolve(system.declaration.start_directory) or "/"
    picture = Picture(f"The files of {top} on {system.name}")
    children: dict[str, list[str]] = {}
    for entry in system.beneath(top):
        if entry.path != top:
            children.setdefault(posixpath.dirname(entry.path), []).append(entry.path)
        if stat.S_ISDIR(entry.mode):
            children.setdefault(entry.path, [])
    lines = list(_branches(children, top, "", depth))
    picture.code(20, 28, top, ACCENT)
    rows = -(-min(len(lines), most) // COLUMNS)
    for number, (text, directory) in enumerate(lines[:most]):
        column, row = divmod(number, rows)
        picture.code(
            20 + column * WIDTH / COLUMNS, 28 + LINE * (row + 1), text, MAIN if directory else INK
        )
    if len(lines) > most:
        picture.code(20, 28 + LINE * (rows + 1), f"and {len(lines) - most} more", MUTED)
    return picture


def _branches(
    children: Mapping[str, Sequence[str]], top: str, indent: str, depth: int
) -> Iterator[tuple[str, bool]]:
    names = sorted(children.get(top, ()))
    for path in names:
        last = path == names[-1]
        directory, inside = path in children, len(children.get(path, ()))
        name = path.rpartition("/")[2].encode("utf-8", "replace").decode()
        more = f" ({inside})" if inside and depth == 1 else ""
        yield f"{indent}{'└─' if last else '├─'} {name}{'/' * directory}{more}", directory
        if depth > 1:
            yield from _branches(children, path, f"{indent}{'   ' if last else '│  '}", depth - 1)


def draw(out: Path, *, seed: int = 0, system: str | None = None) -> list[Path]:
    """Draw all three pictures into a directory and return the files' paths.

    Files for dark pages end with `-dark.svg`. The same seed and system give the same pictures.
    Errors: those of `open_sandbox` and `derived`.
    """
    with open_sandbox(system) as machine:
        pictures = {
            "life": life(derived(machine, LIVED, seed, brief=True)),
            "option": option(derived(machine, COMMAND, seed), bound(COMMAND, machine.system)),
            "tree": draw_file_tree(machine.system),
        }
    out.mkdir(parents=True, exist_ok=True)
    return [
        path
        for name, picture in pictures.items()
        for path in write_pictures(out / f"{name}.svg", picture.svg)
    ]


class OptionStep(NamedTuple):
    """One rollout step: new state, option's nonterminal, production, whether the option ended."""

    state: PartialInput
    nonterminal: Nonterminal
    production: Production
    terminated: bool


@dataclass(frozen=True, slots=True)
class Option:
    """The option o_n of one nonterminal n.

    - Initiation set: the states whose leftmost nonterminal is n.
    - Policy: a distribution over the permitted productions. For a grammar-constrained sampler these
      are n's own.
    - Termination: certain as soon as the leftmost nonterminal is not n, impossible before.
    """

    nonterminal: Nonterminal
    choices: Choices
    policy: Policy

    def can_start(self, state: PartialInput) -> bool:
        """Whether the state is in the initiation set."""
        return state.leftmost == self.nonterminal

    def terminates(self, state: PartialInput) -> bool:
        """Whether the option ends in this state: its termination probability is 0 or 1."""
        return state.leftmost != self.nonterminal

    def step(self, state: PartialInput, random: Random) -> OptionStep:
        """Expand the leftmost nonterminal once. ValueError if the option cannot start."""
        if not self.can_start(state):
            raise ValueError(f"the option of {self.nonterminal} cannot start in {state}")
        index = self.policy.choose(state, self.choices, random)
        production = self.choices.productions[index]
        following = state.expand(production)
        return OptionStep(following, self.nonterminal, production, self.terminates(following))


class Options:
    """All options of a sampler; a rollout runs them in turn until no nonterminal is left."""

    def __init__(
        self, permitted: Mapping[Nonterminal, Iterable[Production]], policy: Policy
    ) -> None:
        self._options = {
            nonterminal: Option(nonterminal, Choices(nonterminal, tuple(productions)), policy)
            for nonterminal, productions in permitted.items()
        }

    def __getitem__(self, nonterminal: Nonterminal) -> Option:
        return self._options[nonterminal]

    def __len__(self) -> int:
        return len(self._options)

    def rollout(
        self, state: PartialInput, random: Random, *, max_steps: int | None = None
    ) -> list[OptionStep]:
        """Return all steps from `state` until it has no nonterminal (or `max_steps` steps).

        A step with `terminated` is the last of its option. The next step belongs to the option of
        the new leftmost nonterminal, which may be an earlier option that starts again.
        """
        steps: list[OptionStep] = []
        while (leftmost := state.leftmost) is not None:
            if max_steps is not None and len(steps) >= max_steps:
                break
            steps.append(self._options[leftmost].step(state, random))
            state = steps[-1].state
        return steps
