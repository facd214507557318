"""Inputs drawn as people write them: shape, command, options and operands by a table of usage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import TypeAlias

from shioenv.domain.inputs import DUPLICATIONS, REDIRECTIONS, SEPARATORS
from shioenv.grammar.kinds import KINDS, Names
from shioenv.grammar.symbols import Nonterminal
from shioenv.synthesis.usage import CommandUsage, Usage, Weights
from shioenv.synthesis.writer import Writer, Written

LONGEST_SHAPE = 6
"""Commands of one input at most, where a shape is drawn."""

FROM_SETS = 0.95
"""Share of commands whose options are a set of the table, which may say that they are others; the
rest get single ones (ours)."""

OTHERS = "*"
"""In a table: all other sets."""

FROM_SHAPES = 0.7
"""Share of inputs of several commands that have a shape of the table; the others follow its pairs
of commands (ours)."""

ATTEMPTS = 6
"""Writings of one command, until one has as many operands as were drawn."""

Write: TypeAlias = Callable[[Nonterminal, frozenset[str] | None], Written | None]


@dataclass(frozen=True)
class People:
    """Draws by one table of usage, among the commands that can be written.

    `utility_share` of the commands are drawn as often as the table says, the others uniformly.
    """

    usage: Usage
    names: tuple[str, ...]
    utility_share: float

    @cached_property
    def _utilities(self) -> Weights[str]:
        known = {name: self.usage.utilities.get(name, 0.0) for name in self.names}
        return Weights.of(known)

    @cached_property
    def _shapes(self) -> dict[int, Weights[tuple[str, ...]]]:
        """The shapes that can be written, by the most commands that they may have."""
        known = set(self.names)
        split = {tuple(shape.split(" ")): n for shape, n in self.usage.shapes.items()}
        possible = {parts: n for parts, n in split.items() if _commands(parts) <= known}
        return {
            most: Weights.of({parts: n for parts, n in possible.items() if _count(parts) <= most})
            for most in range(1, LONGEST_SHAPE + 1)
        }

    @cached_property
    def _follows(self) -> dict[str, Weights[tuple[str, str]]]:
        """What follows a command: an operator and a command."""
        known = set(self.names)
        pairs: dict[str, dict[tuple[str, str], float]] = {}
        for text, n in self.usage.follows.items():
            first, operator, second = text.split(" ")
            if {first, second} <= known:
                pairs.setdefault(first, {})[operator, second] = n
        return {first: Weights.of(following) for first, following in pairs.items()}

    def command(self, random: Random) -> str:
        """The grammar of a command: by use or uniformly."""
        if self._utilities and random.random() < self.utility_share:
            return self._utilities.draw(random)
        return self.names[int(random.random() * len(self.names))]

    def shape(self, random: Random, most: int) -> tuple[str, ...]:
        """Grammars and operators of an input of several commands, at most so many."""
        shapes = self._shapes[min(most, LONGEST_SHAPE)]
        if shapes and random.random() < FROM_SHAPES:
            return shapes.draw(random)
        parts = [self.command(random)]
        while _count(parts) < most and (following := self._follows.get(parts[-1])):
            parts += following.draw(random)
            if random.random() < 0.5:
                break
        return tuple(parts)

    def of(self, name: str) -> CommandUsage:
        """How a command is used; nothing is known of one that the table has not."""
        return self.usage.by_command.get(name, _UNKNOWN)

    def write(
        self,
        writer: Writer,
        starts: Sequence[Nonterminal],
        random: Random,
        write: Write,
        *,
        piped: bool,
    ) -> Written | None:
        """One command with options and operands of the table, None where nothing came of it.

        `starts` are tried in order; `write` writes along a set of options, or along all of them.
        """
        known = self.of(writer.grammar.name)
        options = _options(known, random)
        wanted = _operands(known, options, piped, random)
        for start in starts:
            names = frozenset(options)
            if writer.options.plan(start, names) is None:
                continue
            best: Written | None = None
            for _ in range(ATTEMPTS):
                written = write(start, names)
                if written is None:
                    continue
                best = written
                if wanted is None or n_operands(written.words) == wanted:
                    break
            if best is not None:
                return best
        return write(starts[0], None)

    def target(self, operator: str, random: Random, names: Names) -> str:
        """What a redirection goes to or comes from."""
        known = {
            form.partition(" ")[2]: n
            for form, n in self.usage.targets.items()
            if form.partition(" ")[0] == operator
        }
        form = Weights.of(known).draw(random) if any(known.values()) else "file name"
        if operator == "<":
            return _pick(random, names.get("TextFile") or ("documents/notes.txt",))
        if form == "/dev/null" or operator.startswith("2"):
            return "/dev/null"
        name = KINDS["name"].part.draw(random, names)
        if form.startswith("absolute path"):
            return f"/tmp/{name}"
        if form.startswith("relative path"):
            return f"{_pick(random, names.get('Directory') or ('.',))}/{name}"
        return name


_UNKNOWN = CommandUsage()


def _commands(parts: Sequence[str]) -> set[str]:
    return {part for part in parts if not is_operator(part)}


def _count(parts: Sequence[str]) -> int:
    return sum(not is_operator(part) for part in parts)


def is_operator(part: str) -> bool:
    """Whether a part of a shape is an operator, and no command."""
    return part in SEPARATORS or part in REDIRECTIONS or part in DUPLICATIONS


def _options(known: CommandUsage, random: Random) -> tuple[str, ...]:
    """Options of a command: a set that people write, or single ones."""
    sets = _weights(known.option_sets)
    if sets and (random.random() < FROM_SETS or not known.options):
        drawn_set = sets.draw(random)
        if drawn_set != OTHERS:
            return tuple(drawn_set.split())
    counts, single = _weights(known.n_options), _weights(known.options)
    if not counts or not single:
        return ()
    wanted = min(int(counts.draw(random)), len(single.items))
    drawn: dict[str, None] = {}
    for _ in range(4 * wanted):
        if len(drawn) < wanted:
            drawn[single.draw(random)] = None
    return tuple(drawn)


def _operands(
    known: CommandUsage, options: Sequence[str], piped: bool, random: Random
) -> int | None:
    """How many operands a command with these options gets, None where nothing is known."""
    key = " ".join(sorted(options))
    table = known.piped if piped and known.piped else known.operands
    sequences = _weights(table.get(key) or table.get("*") or {})
    if not sequences:
        return None
    row = sequences.draw(random)
    return len(row.split(" + ")) if row else 0


_MADE: dict[int, tuple[Mapping[str, float], Weights[str]]] = {}


def _weights(counts: Mapping[str, float]) -> Weights[str]:
    """The weights of counts, made once."""
    made = _MADE.get(id(counts))
    if made is None or made[0] is not counts:
        made = _MADE[id(counts)] = (counts, Weights.of(counts))
    return made[1]


def n_operands(words: Sequence[str]) -> int:
    """How many words of a command as written are operands."""
    return sum(not word.startswith(("-", "<ns>")) for word in words[1:])


def _pick(random: Random, values: Sequence[str]) -> str:
    return values[int(random.random() * len(values))]
