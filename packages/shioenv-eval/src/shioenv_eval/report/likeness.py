"""Similarity of drawn inputs to a list of inputs that people wrote."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from shioenv.bash.words import split_words
from shioenv.domain.inputs import DUPLICATIONS, REDIRECTIONS, Input, Role
from shioenv.grammar.parse import InputParser
from shioenv.grammar.spelling import SHOWN, received_form
from shioenv.grammar.symbols import Grammar
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import sample
from shioenv.synthesis.usage_tables import Usage, shipped_usage
from shioenv.system.store import find_system
from shioenv_eval.grammars.describe import (
    ArgumentKind,
    DescribedSegment,
    Describer,
    Description,
    count_usage,
    grammars_on,
    operand_texts,
    option_names,
)
from shioenv_eval.report.markup import Table

_NUMBER = re.compile(r"[+-]?\d+([.,-]\d*)*[a-zA-Z%]?")
_CLUSTER = re.compile(r"-([A-Za-z]+)(\d*)")
_COUNT = re.compile(r"-(?=\d+[A-Za-z])\d+([A-Za-z]+)")


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole."""

    part: int
    whole: int

    @property
    def share(self) -> float:
        """The part divided by the whole; 0 if the whole is 0."""
        return self.part / self.whole if self.whole else 0.0


@dataclass(frozen=True, slots=True)
class Derivable:
    """The shares of a list's options, operands and whole commands that the grammars derive.

    Only commands that have a grammar count; `inputs` are all inputs of the list.
    """

    inputs: int
    options: Share
    operands: Share
    commands: Share


@dataclass(frozen=True, slots=True)
class Likeness:
    """Statistics of drawn inputs in comparison with people's inputs.

    `options` and `operands` are means per command. `repeated` are the commands that repeat an
    option, among the commands with two or more options. `repeated_in_vain` are, among
    the same commands, those that repeat an option, in any form, which their program uses only once.

    `option_sets`, `option_sets_given_utility`, `utilities` and `operators` are distances to a table
    of usage: Jensen-Shannon divergences in bits, 0 to 1. `option_sets` counts an option set
    together with its utility. `option_sets_given_utility` is the mean distance over utilities,
    weighted by people's use of each.

    `normal_forms` is the share of the normal forms of people's single-command inputs that were also
    drawn.
    """

    drawn: int
    options: float
    operands: float
    repeated: Share
    repeated_in_vain: Share
    option_sets: float
    option_sets_given_utility: float
    utilities: float
    operators: float
    normal_forms: Share

    def to_json(self) -> dict[str, object]:
        """Return the numbers as a JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A list of people's inputs compared with the inputs drawn by policies.

    `means` are people's own options and operands per command. `milliseconds` is, by policy, the
    processor time in milliseconds for drawing an input. The first input is excluded, since it
    includes loading the grammars.
    """

    derivable: Derivable
    means: tuple[float, float]
    policies: Mapping[str, Likeness]
    milliseconds: Mapping[str, float]

    def rows(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the rows of the comparison: a label, and the number of each policy."""
        made = self.policies.values()
        options, operands = self.means
        yield (
            f"options per command (people: {options:.2f})",
            [f"{one.options:.2f}" for one in made],
        )
        yield (
            f"operands per command (people: {operands:.2f})",
            [f"{one.operands:.2f}" for one in made],
        )
        yield (
            "commands with 2 or more options: share that repeats one",
            [f"{one.repeated.share:.1%}" for one in made],
        )
        yield (
            "… share that repeats one that its program uses only once",
            [f"{one.repeated_in_vain.share:.1%}" for one in made],
        )
        yield "divergence of option sets, bits", [f"{one.option_sets:.3f}" for one in made]
        yield "… mean over utilities", [f"{one.option_sets_given_utility:.3f}" for one in made]
        yield "divergence of utilities, bits", [f"{one.utilities:.3f}" for one in made]
        yield "divergence of operators, bits", [f"{one.operators:.3f}" for one in made]
        forms = next(iter(made)).normal_forms.whole
        yield f"normal forms sampled, of {forms}", [str(one.normal_forms.part) for one in made]
        yield (
            "time per sampled input, ms",
            [f"{self.milliseconds[name]:.2f}" for name in self.policies],
        )

    def shares(self) -> Iterator[tuple[str, Share]]:
        """Yield the shares of people's inputs that the grammars derive, each with its name."""
        yield "options", self.derivable.options
        yield "operands", self.derivable.operands
        yield "commands", self.derivable.commands

    def markdown(self, source: str) -> str:
        """Return the comparison as a part of the grammars' page; `source` describes the inputs."""
        table = Table(
            "Comparison with inputs written by people",
            f"{source} [Kinds](design/kinds.md#measured) has the results of a manual review of "
            "sampled inputs.",
            ("", *(f"`{name}`" for name in self.policies)),
            [(label, *cells) for label, cells in self.rows()],
        )
        derived = Table(
            "Coverage of inputs written by people",
            "Share that the grammars can derive on the system, including names of files and users.",
            ("", "derived", "in total", "share"),
            [
                (label, f"{one.part:,}", f"{one.whole:,}", f"{one.share:.1%}")
                for label, one in self.shares()
            ],
        )
        return f"{table.markdown}\n{derived.markdown}"

    def to_json(self) -> dict[str, object]:
        """Return the numbers as a JSON object."""
        return {
            "derivable": asdict(self.derivable),
            "means": {"options": self.means[0], "operands": self.means[1]},
            "policies": {name: one.to_json() for name, one in self.policies.items()},
            "milliseconds": dict(self.milliseconds),
        }


COMPARED = ("mixed", "people", "paper")
"""The policies that are compared."""


def compare_with_people(
    texts: Sequence[str],
    *,
    draws: int,
    seed: int = 0,
    system: str | None = None,
    policies: Sequence[str] = COMPARED,
) -> Comparison:
    """Compare people's inputs with the policies' draws on a built system.

    The table of usage is the shipped one. Each policy draws `draws` inputs, at least one; nothing
    is executed. Errors: those of `find_system` and of `sample`.
    """
    built = find_system(system)
    grammars = grammars_on(built)
    describer, parser = Describer(grammars), InputParser(grammars)
    theirs = [describer.describe(text) for text in texts]
    forms = normal_forms(texts, parser)
    segments = [one for each in theirs for one in each.segments if one.grammar]
    commands = max(1, len(segments))
    made, milliseconds = {}, {}
    for policy in policies:
        stream = sample(Drawing(policy=policy, seed=seed), system=built, count=draws)
        inputs = [next(stream).input]
        began = time.process_time()
        inputs += [one.input for one in stream]
        milliseconds[policy] = 1000 * (time.process_time() - began) / max(1, draws - 1)
        made[policy] = measure_likeness(inputs, describer, grammars, shipped_usage(), forms)
    return Comparison(
        derivable=derivable(theirs),
        means=(
            sum(len(list(option_names(one))) for one in segments) / commands,
            sum(len(list(operand_texts(one.arguments))) for one in segments) / commands,
        ),
        policies=made,
        milliseconds=milliseconds,
    )


def derivable(descriptions: Iterable[Description]) -> Derivable:
    """Compute the shares of the described inputs that the describer's grammars derive."""
    counts: Counter[str] = Counter()
    for description in descriptions:
        counts["inputs"] += 1
        for segment in description.segments:
            if segment.grammar is None:
                continue
            counts["commands"] += 1
            counts["commands derived"] += segment.derivable
            for argument in segment.arguments:
                kind = (
                    "options"
                    if argument.kind in {ArgumentKind.OPTION, ArgumentKind.CLUSTER}
                    else "operands"
                )
                counts[kind] += 1
                counts[f"{kind} derived"] += argument.derivable

    def share(kind: str) -> Share:
        return Share(counts[f"{kind} derived"], counts[kind])

    return Derivable(counts["inputs"], share("options"), share("operands"), share("commands"))


def measure_likeness(
    drawn: Sequence[Input],
    describer: Describer,
    grammars: Iterable[Grammar],
    usage: Usage,
    forms: frozenset[str],
) -> Likeness:
    """Compare drawn inputs with people's table of usage and normal forms.

    `drawn` must hold at least one command that has a grammar.
    """
    descriptions = [describer.describe(shell_input.text) for shell_input in drawn]
    known = {grammar.name: grammar for grammar in grammars}
    segments = [segment for each in descriptions for segment in each.segments if segment.grammar]
    names = [list(option_names(segment)) for segment in segments]
    several = [
        (segment, options)
        for segment, options in zip(segments, names, strict=True)
        if len(options) > 1
    ]
    ours = count_usage(descriptions, "")
    reached = {normal_form(shell_input) for shell_input in drawn} & forms
    return Likeness(
        drawn=len(drawn),
        options=sum(map(len, names)) / len(segments),
        operands=sum(len(list(operand_texts(one.arguments))) for one in segments) / len(segments),
        repeated=Share(sum(len(set(each)) < len(each) for _, each in several), len(several)),
        repeated_in_vain=Share(
            sum(_in_vain(known[one.grammar or ""], one, each) for one, each in several),
            len(several),
        ),
        option_sets=divergence(_sets(ours), _sets(usage)),
        option_sets_given_utility=_given_utility(ours, usage),
        utilities=divergence(ours.utilities, usage.utilities),
        operators=divergence(_operators(ours), _operators(usage)),
        normal_forms=Share(len(reached), len(forms)),
    )


def _in_vain(grammar: Grammar, segment: DescribedSegment, options: Sequence[str]) -> bool:
    """Whether a command repeats an option, in any form, that its program uses only once."""
    line = {name: spec.names for spec in grammar.options for name in spec.names}
    repeats = {name for spec in grammar.options if spec.repeats for name in spec.names}
    once = [line.get(name, (name,)) for name in options if name not in repeats]
    return len(set(once)) < len(once)


def _sets(usage: Usage) -> Mapping[str, float]:
    return {
        f"{name}: {options}": count
        for name, of_command in usage.by_command.items()
        for options, count in of_command.option_sets.items()
    }


def _given_utility(ours: Usage, theirs: Usage) -> float:
    total = weight = 0.0
    for name, count in theirs.utilities.items():
        known = ours.by_command.get(name)
        wanted = theirs.by_command.get(name)
        if known is not None and wanted is not None and wanted.option_sets:
            total += count * divergence(known.option_sets, wanted.option_sets)
            weight += count
    return total / weight if weight else 0.0


def _operators(usage: Usage) -> Mapping[str, float]:
    counts: Counter[str] = Counter()
    for shape, count in usage.shapes.items():
        for part in shape.split(" "):
            if not part[0].isalpha():
                counts[part] += count  # type: ignore[assignment]
    return counts


def divergence(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Return the Jensen-Shannon divergence of two distributions given as counts, in bits: 0 to 1.

    1 if one of them has no counts.
    """
    totals = sum(first.values()), sum(second.values())
    if not all(totals):
        return 1.0
    bits = 0.0
    for name in first.keys() | second.keys():
        p, q = first.get(name, 0.0) / totals[0], second.get(name, 0.0) / totals[1]
        middle = (p + q) / 2
        bits += sum(x / 2 * math.log2(x / middle) for x in (p, q) if x)
    return bits


def normal_forms(texts: Iterable[str], parser: InputParser) -> frozenset[str]:
    """Return the normal forms of texts that are a single command without operators."""
    inputs = (parser.parse(text) for text in texts)
    return frozenset(normal_form(one) for one in inputs if not one.operators)


def normal_form(shell_input: Input) -> str:
    """Reduce an input to its commands, options and operators; numbers are N, other words A.

    The letters of a cluster are sorted, except for `find`. Consecutive A are merged. A variable
    assignment before a command is `X=`.
    """
    parts: list[str] = []
    words: list[str] = []
    command = ""
    for token in shell_input.tokens:
        if token.role is Role.ARGUMENT and (token.argument.joins_left and words):
            words[-1] += token.argument.text
            continue
        if token.role is Role.ARGUMENT:
            words.append(token.argument.text)
            continue
        parts += _forms(words, command)
        words = []
        text = token.argument.text
        if token.role is Role.COMMAND:
            pieces = split_words(text)
            command = pieces[-1].rpartition("/")[2] if pieces else ""
            parts += ["X=" for _ in pieces[:-1]]
            parts.append(command)
        elif token.role is Role.OPERATOR:
            redirects = text in REDIRECTIONS or text in DUPLICATIONS
            parts.append(re.sub(r"^[0-9]+|[0-9]+$", "", text) if redirects else text)
    parts += _forms(words, command)
    return " ".join(parts)


def _forms(words: Iterable[str], command: str) -> Iterator[str]:
    before = ""
    for argument in words:
        for word in split_words(argument):
            form = _form(received_form(word).translate(SHOWN), command)
            if form != "A" or before != "A":
                yield form
            before = form


def _form(word: str, command: str) -> str:
    if re.match(r"--[a-zA-Z]", word):
        return re.sub(r"=.*", "=V", word, flags=re.DOTALL)
    if match := _CLUSTER.fullmatch(word) or _COUNT.fullmatch(word):
        letters = match[1] if command == "find" else "".join(sorted(match[1]))
        return f"-{letters}{' N' if re.search(r'[0-9]', word) else ''}"
    if re.fullmatch(r"-\d+", word):
        return "-N"
    if re.match(r"-[A-Za-z].", word):
        return f"{word[:2]} {'N' if re.fullmatch(r'[0-9,-]+', word[2:]) else 'A'}"
    if word.startswith("-") and len(word) > 1:
        return re.sub(r"\d+", "N", word[:3])
    return "N" if _NUMBER.fullmatch(word) else "A"
