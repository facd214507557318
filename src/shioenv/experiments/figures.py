"""The paper's figures of its method, drawn from what really happens on a system.

Three pictures, each as SVG for a light and a dark page: the life of an input from state and action
through production and execution to its score; what one of its options expands; the files that a
session finds.
"""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from random import Random
from typing import Final

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.argument import Argument
from shioenv.domain.inputs import Input
from shioenv.domain.runner import State
from shioenv.errors import SamplesExhaustedError
from shioenv.files.durable import atomic_write
from shioenv.grammar.bind import bind
from shioenv.grammar.library import load_grammars
from shioenv.grammar.symbols import Grammar, Nonterminal, show_argument
from shioenv.irreducibility.score import Score
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.text import score
from shioenv.report.drawing import ACCENT, DARK, GRID, INK, MAIN, MUTED, SOFT
from shioenv.seeding import generator
from shioenv.synthesis.option import Options, OptionStep
from shioenv.synthesis.partial_input import PartialInput
from shioenv.synthesis.policy import WeightedPolicy
from shioenv.synthesis.samplers import gcs
from shioenv.system.catalogue import catalogue
from shioenv.system.store import System

COMMAND: Final = "df"
"""Whose inputs are drawn: Section 3.2 shows it."""

ATTEMPTS: Final = 2000
"""Derivations drawn at most until one is short enough to be shown, and does something."""

ARGUMENTS: Final = (2, 3)
"""Of an input that is shown, at least and at most; some are options, some are not."""

STEPS: Final = (4, 12)
"""Productions of its derivation."""

WIDTH: Final = 860
LINE: Final = 20
CHARACTER: Final = 7.3
"""Pixels of a picture; a character of the fixed font is so wide."""

COLUMNS: Final = 3
"""Of a file tree."""

LONGEST: Final = 108
"""Characters of a line."""

SHOWN: Final = 6
"""Alternatives of a nonterminal, lines of an output, contrasts that are shown."""


@dataclass
class Picture:
    """Lines, boxes and texts, put into an SVG."""

    title: str
    parts: list[str] = field(default_factory=list)
    bottom: float = 0.0

    def text(self, x: float, y: float, text: str, colour: str = INK, **style: str) -> None:
        """A line of text; its baseline is `y`."""
        more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in style.items())
        content = escape(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")
        self.parts.append(f'<text x="{x:g}" y="{y:g}" fill="{colour}"{more}>{content}</text>')
        self.bottom = max(self.bottom, y + 8)

    def code(self, x: float, y: float, text: str, colour: str = INK) -> None:
        """The same in a fixed font, blanks kept."""
        self.text(x, y, text, colour, **{"class": "code", "xml:space": "preserve"})

    def box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """A frame with round corners."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="none" '
            f'stroke="{colour}"/>'
        )
        self.bottom = max(self.bottom, y + height + 4)

    def line(self, points: Sequence[tuple[float, float]], colour: str = MUTED) -> None:
        """A line through points."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')

    def svg(self, *, dark: bool = False) -> str:
        """The picture. Colours of a dark page stand for those of a light one where it is dark."""
        height = self.bottom + 12
        body = "\n".join(self.parts)
        page = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
            f'width="{WIDTH}" height="{height:g}" role="img">\n'
            f"<title>{escape(self.title)}</title>\n"
            "<style>text{font:13px Helvetica,Arial,Liberation Sans,sans-serif}"
            ".code{font:12px DejaVu Sans Mono,Menlo,Consolas,monospace}</style>\n"
            f"{body}\n</svg>\n"
        )
        if dark:
            for light, other in DARK.items():
                page = page.replace(light, other)
        return page


@dataclass(frozen=True, slots=True)
class Derived:
    """An input with the steps that made it, and what it does."""

    steps: tuple[OptionStep, ...]
    start: PartialInput
    input: Input
    score: Score


def derived(machine: SandboxRunner, seed: int) -> Derived:
    """An input that can be shown: short, done with exit code 0, every part of it by a real step.

    Errors: SamplesExhaustedError where none of so many is; those of sandboxes.
    """
    grammar = bound(machine.system)
    options = Options(gcs([grammar]), WeightedPolicy())
    start = PartialInput.initial(grammar.start)
    random = generator(seed, "figures")
    cwd = machine.system.declaration.start_directory
    for _ in range(ATTEMPTS):
        steps = tuple(_derivation(options, start, random))
        if not STEPS[0] <= len(steps) <= STEPS[1] or steps[-1].state.leftmost is not None:
            continue
        command, *arguments = steps[-1].state.words
        written = Input.single(command, map(Argument.parse, arguments))
        kinds = {argument.startswith("-") for argument in arguments}
        if not ARGUMENTS[0] <= written.n_arguments <= ARGUMENTS[1] or len(kinds) < 2:
            continue
        behavior = machine.run(written.text, State(cwd=cwd))
        lines = behavior.text.splitlines()
        fits = 0 < len(lines) <= SHOWN and max(map(len, lines)) <= LONGEST
        if behavior.exit_code == 0 and fits:
            scored = score(written, runner=machine, cwd=cwd, scoring=Scoring(budget=64))
            return Derived(steps, start, written, scored)
    raise SamplesExhaustedError(
        f"none of {ATTEMPTS} inputs of {COMMAND} can be shown", hint="another --seed"
    )


def bound(system: System) -> Grammar:
    """The grammar whose inputs are shown, with the names of a system."""
    (grammar,) = (one for one in load_grammars() if one.name == COMMAND)
    return bind(grammar, catalogue(system))


def _derivation(options: Options, state: PartialInput, random: Random) -> Iterator[OptionStep]:
    for _ in range(STEPS[1] + 1):
        if state.leftmost is None:
            return
        step = options[state.leftmost].step(state, random)
        yield step
        state = step.state


def shown(state: PartialInput) -> str:
    """A state as a line, nonterminals in angle brackets."""
    return " ".join(show_argument(argument) for argument in state.arguments)


def life(made: Derived, cwd: str) -> Picture:
    """From state and action through production and execution to the score."""
    picture = Picture("The life of an input")
    x, y = 20.0, 28.0
    picture.text(x, y, "states, and the production that each option takes", MUTED)
    y += LINE + 4
    picture.code(x, y, f"s0  {shown(made.start)}")
    for number, step in enumerate(made.steps, 1):
        y += LINE
        body = " ".join(map(show_argument, step.production.body)) or "nothing"
        picture.line([(x + 6, y - LINE + 6), (x + 6, y + LINE - 14)], SOFT)
        picture.code(x + 30, y, f"{step.nonterminal} becomes {body}", MAIN)
        y += LINE
        picture.code(x, y, f"s{number:<2} {shown(step.state)}")
    y += LINE + 14
    picture.text(x, y, "execution, on the pristine system", MUTED)
    lines = made.score.behavior.text.splitlines()
    picture.box(x, y + 10, WIDTH - 2 * x, LINE * (len(lines) + 2) + 10, GRID)
    y += LINE + 10
    picture.code(x + 12, y, f"$ cd {cwd}; {made.input.text}", ACCENT)
    for line in lines:
        y += LINE
        picture.code(x + 12, y, line)
    y += LINE
    changes = len(made.score.behavior.patch.operations)
    picture.code(x + 12, y, f"exit code {made.score.behavior.exit_code}, {changes} changes", MUTED)
    y += 2 * LINE + 6
    picture.text(x, y, "score: what remains where arguments are left out", MUTED)
    contrasts = [one for part in made.score.segments for one in part.contrasts]
    for contrast in contrasts[:SHOWN]:
        y += LINE
        same = contrast.difference is None
        said = "does the same" if same else f"differs: {contrast.difference.channel.value}"  # type: ignore[union-attr]
        picture.code(x, y, contrast.text[:60], MUTED if same else INK)
        picture.code(x + 62 * CHARACTER, y, said, MUTED if same else MAIN)
    y += LINE + 8
    value = made.score.irreducibility
    told = "undefined" if value is None else f"{value:.3f}"
    picture.text(x, y, f"irreducibility {told}", INK, font_weight="bold")
    return picture


def option(made: Derived, grammar: Grammar) -> Picture:
    """One option's expansion: where it may start, what it may take and takes, where it ends."""
    chosen = max(
        made.steps, key=lambda step: min(len(grammar.productions[step.nonterminal]), SHOWN)
    )
    place = made.steps.index(chosen)
    before = made.steps[place - 1].state if place else made.start
    head: Nonterminal = chosen.nonterminal
    picture = Picture(f"One option's expansion: that of {head}")
    x, y = 20.0, 28.0
    picture.text(x, y, f"starts where the leftmost nonterminal is {head}", MUTED)
    y += LINE
    picture.code(x, y, shown(before))
    productions = grammar.productions[head]
    total = sum(production.weight for production in productions) or 1.0
    first = [one for one in productions if one == chosen.production]
    others = [one for one in productions if one != chosen.production][: SHOWN - 1]
    y += LINE + 14
    picture.text(x, y, f"its policy chooses one of {len(productions)} productions", MUTED)
    trunk = y + 8
    for production in (*first, *others):
        y += LINE
        taken = production == chosen.production
        colour = ACCENT if taken else INK
        body = " ".join(map(show_argument, production.body)) or "nothing"
        picture.line([(x + 6, trunk), (x + 6, y - 4), (x + 26, y - 4)], colour if taken else SOFT)
        picture.code(x + 32, y, f"{production.weight / total:5.1%}  {body}", colour)
    left = len(productions) - len(first) - len(others)
    if left:
        y += LINE
        picture.code(x + 32, y, f"       and {left} more", MUTED)
    y += LINE + 14
    ends = "ends here" if chosen.terminated else "goes on"
    picture.text(x, y, f"the state that follows; the option {ends}", MUTED)
    y += LINE
    picture.code(x, y, shown(chosen.state))
    return picture


def tree(system: System, *, depth: int = 2, most: int = 120) -> Picture:
    """The files of the start directory, so many levels of them and lines at most."""
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
    """Draws all three into a directory and gives the files, those for dark pages as `-dark.svg`.

    The same seed and system give the same pictures. Errors: those of `open_sandbox` and `derived`.
    """
    with open_sandbox(system) as machine:
        made = derived(machine, seed)
        pictures = {
            "life": life(made, machine.system.declaration.start_directory),
            "option": option(made, bound(machine.system)),
            "tree": tree(machine.system),
        }
    out.mkdir(parents=True, exist_ok=True)
    return list(_written(out, pictures.items()))


def _written(out: Path, pictures: Iterable[tuple[str, Picture]]) -> Iterator[Path]:
    for name, picture in pictures:
        for suffix, dark in (("", False), ("-dark", True)):
            path = out / f"{name}{suffix}.svg"
            atomic_write(path, picture.svg(dark=dark).encode("utf-8", "replace"))
            yield path
