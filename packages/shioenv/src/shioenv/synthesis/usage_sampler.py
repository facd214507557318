"""Inputs that follow a usage table in their shapes, commands, options and operands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from shioenv.domain.inputs import DUPLICATIONS, REDIRECTIONS, SEPARATORS
from shioenv.grammar.kinds import KINDS
from shioenv.grammar.parts import Names
from shioenv.grammar.symbols import Nonterminal
from shioenv.synthesis.derivation import Drawn
from shioenv.synthesis.plans import OptionTable, WritingPlan
from shioenv.synthesis.usage_tables import ABOUT_ITSELF, CommandUsage, Usage, Weights, shipped_usage
from shioenv.synthesis.writer import CommandWriter

LONGEST_SHAPE = 6
"""Maximum number of commands of an input with a drawn shape."""

UNSEEN = 3.0
"""Weight of drawing options individually (our choice); that of drawing a set is the command's
number of inputs in the table. So the options of rare commands are mostly drawn individually."""

UNSEEN_OPTION = 0.5
"""The count assumed for an option without counts (our choice)."""

IN_PAIRS = 0.7
"""Share of further options that are drawn from those paired with the first option (our choice)."""

GROWN = 0.5
"""Share of individually drawn sets that extend a set of the table by one option (our choice)."""

NEW = 4
"""Number of attempts to draw options that form a new set; the last is used in any case."""

OTHERS = "*"
"""The entry of a table for all sets that it does not list."""

FROM_SHAPES = 0.7
"""Share of inputs of several commands that have a shape of the table (our choice). The other inputs
follow the table's pairs of commands."""

ATTEMPTS = 6
"""Number of attempts to write a command with the drawn number of operands."""


@dataclass(frozen=True)
class People:
    """Draws from a usage table, limited to the commands with a usable grammar.

    `names` are the grammars of these commands. A share `utility_share` of single commands is drawn
    by the table's counts, the rest uniformly. For a share `new_sets` of commands the options are
    drawn individually, mostly as sets that the table lacks.
    """

    usage: Usage
    names: tuple[str, ...]
    utility_share: float
    new_sets: float

    @cached_property
    def _utilities(self) -> Weights[str]:
        known = {name: self.usage.utilities.get(name, 0.0) for name in self.names}
        return Weights.of(known)

    @cached_property
    def _shapes(self) -> dict[int, Weights[tuple[str, ...]]]:
        """The usable shapes, by maximum number of commands."""
        known = set(self.names)
        split = {tuple(shape.split(" ")): n for shape, n in self.usage.shapes.items()}
        possible = {parts: n for parts, n in split.items() if _commands(parts) <= known}
        return {
            most: Weights.of({parts: n for parts, n in possible.items() if _count(parts) <= most})
            for most in range(1, LONGEST_SHAPE + 1)
        }

    @cached_property
    def _follows(self) -> dict[str, Weights[tuple[str, str]]]:
        """The operators and commands that follow each command."""
        known = set(self.names)
        pairs: dict[str, dict[tuple[str, str], float]] = {}
        for text, n in self.usage.follows.items():
            first, operator, second = text.split(" ")
            if {first, second} <= known:
                pairs.setdefault(first, {})[operator, second] = n
        return {first: Weights.of(following) for first, following in pairs.items()}

    @cached_property
    def _precedes(self) -> dict[str, Weights[str]]:
        """The commands whose output each command reads."""
        known = set(self.names)
        pairs: dict[str, dict[str, float]] = {}
        for text, n in self.usage.follows.items():
            first, operator, second = text.split(" ")
            if operator == "|" and {first, second} <= known:
                pairs.setdefault(second, {})[first] = n
        return {second: Weights.of(before) for second, before in pairs.items()}

    def source(self, name: str, random: Random) -> str | None:
        """Draw the grammar of a command whose output `name` reads; None if the table has none."""
        before = self._precedes.get(name)
        return before.draw(random) if before else None

    def command(self, random: Random) -> str:
        """Draw the grammar of a command, by the table or uniformly."""
        if self._utilities and random.random() < self.utility_share:
            return self._utilities.draw(random)
        return self.names[int(random.random() * len(self.names))]

    def shape(self, random: Random, most: int) -> tuple[str, ...]:
        """Draw the grammars and operators of at most `most` (and `LONGEST_SHAPE`) commands."""
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
        """Return the usage of a command; all counts are empty if the table lacks it."""
        return self.usage.by_command.get(name, _UNKNOWN)

    @cached_property
    def substitutions(self) -> Mapping[str, float]:
        """The table's substitutions; the shipped table's if it has none."""
        return self.usage.substitutions or shipped_usage().substitutions

    def nested(self, name: str, random: Random, *, among_all: bool) -> str | None:
        """Draw the grammar of a command that the command `name` runs.

        The fewer counts the table has for this, the more often any command is drawn instead.
        Without `among_all`, None is returned instead.
        """
        programs = _weights(self.of(name).nested)
        seen = programs.cumulative[-1] if programs else 0.0
        if random.random() * (seen + UNSEEN) < seen:
            return programs.draw(random)
        return self.command(random) if among_all else None

    def write(
        self,
        writer: CommandWriter,
        starts: Sequence[Nonterminal],
        random: Random,
        *,
        horizon: int,
        piped: bool,
    ) -> Drawn | None:
        """Draw one command with options and operands by the table; None if that fails.

        `starts` are tried in order. The order is reversed if the command is not `piped` and should
        have no operands, so that forms reading standard input come first.

        The drawn options are written. After half of the attempts, the options' weights are ignored.
        If no attempt gives the drawn number of operands, another number is accepted. If all
        attempts fail, any options are accepted.
        """
        known = self.of(writer.grammar.name)
        options = self._options(writer, random)
        wanted = _operands(known, options, piped, random)
        names = frozenset(options)

        def write(start: Nonterminal, plan: WritingPlan, *, evenly: bool = False) -> Drawn | None:
            return writer.write(start, plan, random, horizon=horizon, spelling=known, evenly=evenly)

        best: Drawn | None = None
        for start in reversed(starts) if wanted == 0 and not piped else starts:
            plan = writer.options.plan(start, names)
            if plan is None:
                continue
            for attempt in range(ATTEMPTS):
                evenly = best is None and attempt >= ATTEMPTS // 2
                written = write(start, plan, evenly=evenly)
                if written is None:
                    continue
                if wanted is None or n_operands(written.words) == wanted:
                    return written
                best = best or written
        if best is None and (plan := writer.options.plan(starts[0], None)) is not None:
            return write(starts[0], plan)
        return best

    def _options(self, writer: CommandWriter, random: Random) -> tuple[str, ...]:
        """Draw a command's options: a set of the table, or individual options."""
        name = writer.grammar.name
        known = self.of(name)
        sets = _weights(known.option_sets)
        seen = sets.cumulative[-1] if sets else 0.0
        share = 1 - self.new_sets
        if random.random() * (seen + UNSEEN) < share * seen:
            drawn_set = sets.draw(random)
            if drawn_set != OTHERS:
                return tuple(drawn_set.split())
        if name not in self._singles:
            self._singles[name] = _Singles.of(known, self._n_options, writer.options)
        for _ in range(NEW):
            drawn = self._singles[name].draw(random)
            if " ".join(sorted(drawn)) not in known.option_sets:
                break
        return drawn

    @cached_property
    def _n_options(self) -> Mapping[str, float]:
        """The distribution of the number of options over all commands."""
        counts: Counter[str] = Counter()
        for known in self.usage.by_command.values():
            counts.update(known.n_options)
        total = sum(counts.values()) or 1
        return {number: count / total for number, count in counts.items()}

    @cached_property
    def _singles(self) -> dict[str, _Singles]:
        return {}

    def target(self, operator: str, random: Random, names: Names) -> str:
        """Draw the file of a redirection."""
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
    return {part for part in parts if not is_shape_operator(part)}


def _count(parts: Sequence[str]) -> int:
    return sum(not is_shape_operator(part) for part in parts)


def is_shape_operator(part: str) -> bool:
    """Whether a part of a shape is an operator rather than a command."""
    return part in SEPARATORS or part in REDIRECTIONS or part in DUPLICATIONS


@dataclass(frozen=True, slots=True)
class _Singles:
    """A model for drawing a command's options individually, including options without counts.

    It is built from the table's counts less those of the sets that the table lists. `counts` are
    weights of the number of options, `options` those of each option, and `beside` those of a second
    option by the first. `lines` maps all names of one option to the same number. `sets` are the
    listed sets, by size.
    """

    counts: Weights[str]
    options: Weights[str]
    beside: Mapping[str, Weights[str]]
    lines: Mapping[str, int]
    sets: Mapping[int, Weights[tuple[str, ...]]]

    @classmethod
    def of(
        cls, known: CommandUsage, n_options: Mapping[str, float], options: OptionTable
    ) -> _Singles:
        """Build the model from a command's usage; `n_options` is the overall distribution."""
        counts = Counter(known.n_options)
        left = Counter({name: known.options.get(name, 0.0) for name in options.bits})
        sets: dict[int, dict[tuple[str, ...], float]] = {}
        for text, count in known.option_sets.items():
            named = tuple(text.split())
            if text == OTHERS or not left.keys() >= set(named):
                continue
            counts[str(len(named))] -= count  # type: ignore[assignment]
            left.subtract(dict.fromkeys(named, count))
            sets.setdefault(len(named), {})[named] = count
        for number, share in n_options.items():
            counts[number] = max(counts[number], 0.0) + UNSEEN * share  # type: ignore[assignment]
        weights = {name: max(count, 0.0) + UNSEEN_OPTION for name, count in left.items()}
        beside: dict[str, dict[str, float]] = {}
        for pair, count in known.pairs.items():
            first, second = pair.split(" ")
            if first in weights and second in weights:
                beside.setdefault(first, {})[second] = count
                beside.setdefault(second, {})[first] = count
        return cls(
            Weights.of(counts),
            Weights.of(weights),
            {name: Weights.of(others) for name, others in beside.items()},
            {name: options.line(name) for name in options.bits},
            {number: Weights.of(named) for number, named in sets.items()},
        )

    def draw(self, random: Random) -> tuple[str, ...]:
        """Draw distinct options; none if the command has none."""
        if not self.options or not self.counts:
            return ()
        wanted = min(int(self.counts.draw(random)), len(self.options.items))
        drawn: dict[int, str] = {}
        if wanted > 1 and wanted - 1 in self.sets and random.random() < GROWN:
            grown = self.sets[wanted - 1].draw(random)
            drawn = {self.lines[option]: option for option in grown}
        first = next(iter(drawn.values()), None)
        for _ in range(4 * wanted):
            if len(drawn) >= wanted:
                break
            weights = self.options
            if first is not None and first in self.beside and random.random() < IN_PAIRS:
                weights = self.beside[first]
            option = weights.draw(random)
            if wanted > 1 and option in ABOUT_ITSELF:
                continue
            first = first or option
            drawn.setdefault(self.lines[option], option)
        return tuple(drawn.values())


def _operands(
    known: CommandUsage, options: Sequence[str], piped: bool, random: Random
) -> int | None:
    """Draw the number of operands of a command with these options; None if unknown."""
    key = " ".join(sorted(options))
    if options and ABOUT_ITSELF.issuperset(options):
        return 0
    table = known.piped if piped and known.piped else known.operands
    sequences = _weights(table.get(key) or table.get("*") or {})
    if not sequences:
        return None
    row = sequences.draw(random)
    return len(row.split(" + ")) if row else 0


_MADE: dict[int, tuple[Mapping[str, float], Weights[str]]] = {}


def _weights(counts: Mapping[str, float]) -> Weights[str]:
    """Return the weights for counts, cached per mapping."""
    made = _MADE.get(id(counts))
    if made is None or made[0] is not counts:
        made = _MADE[id(counts)] = (counts, Weights.of(counts))
    return made[1]


def n_operands(words: Sequence[str]) -> int:
    """Count the operands among the words of a command."""
    return sum(not word.startswith(("-", "<ns>")) for word in words[1:])


def _pick(random: Random, values: Sequence[str]) -> str:
    return values[int(random.random() * len(values))]
