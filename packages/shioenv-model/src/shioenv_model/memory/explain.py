"""Induce what a command prints from examples: the simplest function that explains them.

No table says what a command computes with its options. Neighbours (similar records) with the same
options are examples: their input text, their words, their output. A function that explains all
examples, with few exceptions, is applied to the input of the queried command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from typing import TypeAlias

from shioenv.grammar.traits import PATHS
from shioenv_model.bash.work import spend, uncounted
from shioenv_model.memory.column_tables import Tables
from shioenv_model.memory.example_records import Induced, Matching, WithOption
from shioenv_model.memory.facts import Operand
from shioenv_model.memory.forms import Form
from shioenv_model.memory.functions.families import functions
from shioenv_model.memory.functions.space import Given, TextFunction
from shioenv_model.memory.interpret import Interpreter
from shioenv_model.memory.rewrite import Kept, Taken

EXAMPLES = 12
"""Maximum number of examples considered."""

SPARED = 4
"""One in this many examples may remain unexplained (our choice). Some examples have unusual names
and encodings."""

ENOUGH = 3
"""Number of explained examples that suffices if a function has no answer for the others (our
choice)."""

_TEXTS = "flx"


@dataclass(frozen=True)
class Explained:
    """The output that a function predicts for the queried command, and the support for it."""

    output: str
    exit_code: int
    function: TextFunction
    agreed: int
    """Number of examples that the function explains; 0 if equally good functions disagree."""


@dataclass(frozen=True)
class ExecutedCommand:
    """An executed command: its inputs, output and exit code."""

    given: Given
    output: str
    exit_code: int


class Induction:
    """Induces functions from sets of examples, with a cache by set."""

    def __init__(self) -> None:
        self._found = lru_cache(maxsize=2_000)(_found)

    def explain(self, ours: Taken, neighbours: Sequence[tuple[Taken, Kept]]) -> Explained | None:
        """Predict the queried command's output from neighbours, given in order of distance.

        Return None if no neighbour is an example, or if no function explains the examples.
        """
        mine = known_inputs(ours)
        if mine is None:
            return None
        plain = sum(value is None for _, value in ours.form.options)
        found = self._functions(mine, neighbours, plain)
        if found is None:
            return None
        functions, agreed = found
        made = _applied(mine, functions[0], agreed)
        if made is None or len(functions) == 1:
            return made
        with uncounted():
            others = {function(mine) for function in functions[1:]}
        is_clear = others == {(made.output, made.exit_code)}
        return made if is_clear else replace(made, agreed=0)

    def combine(
        self, ours: Taken, examples: Callable[[Taken], Sequence[tuple[Taken, Kept]]]
    ) -> Explained | None:
        """Predict the output by combining the functions found for each option alone.

        `examples` returns the neighbours of a command: of the queried one with a single option, and
        with none. Return None if an option is not explained, if options need different families, or
        if two options change the same setting.
        """
        mine = known_inputs(ours)
        if mine is None:
            return None
        found: list[tuple[TextFunction, int]] = []
        for each in parts(ours):
            part = known_inputs(each)
            one = None if part is None else self._function(part, examples(each))
            if one is None or (found and one[0].family.name != found[0][0].family.name):
                return None
            found.append(one)
        functions = [function for function, _ in found]
        family = functions[0].family
        if family.beside is not None:
            flags = family.beside.flags({one.flags[family.beside.flag] for one in functions})
            if flags is not None:
                made = TextFunction(family.beside.family, (), flags)
                return _applied(mine, made, min(agreed for _, agreed in found))
        bare = with_options(ours, ())
        plain = known_inputs(bare)
        base = None if plain is None else self._function(plain, examples(bare))
        usual = {name: values[0] for name, values in (family.variants or {}).items()}
        if base is not None and base[0].family.name == family.name:
            usual |= base[0].flags
        changed: dict[str, str] = {}
        for function in functions:
            for name, value in function.flags.items():
                if value != usual[name] and changed.setdefault(name, value) != value:
                    return None
        places = dict(pair for function in functions for pair in function.places)
        if len(set(places.values())) < len(places) or set(places.values()) != mine.words.keys():
            return None
        made = TextFunction(family, tuple(places.items()), {**usual, **changed})
        return _applied(mine, made, min(agreed for _, agreed in found))

    def _function(
        self, mine: Given, neighbours: Sequence[tuple[Taken, Kept]]
    ) -> tuple[TextFunction, int] | None:
        """Return the first of `_functions`, and the number of examples that it explains."""
        found = self._functions(mine, neighbours)
        return None if found is None else (found[0][0], found[1])

    def _functions(
        self, mine: Given, neighbours: Sequence[tuple[Taken, Kept]], options: int = 0
    ) -> tuple[list[TextFunction], int] | None:
        """Return the functions that explain the examples among the neighbours, and their number.

        `options` is the number of options without a value. Return None if there are no examples, or
        if no function explains them.
        """
        examples = _chosen(mine, neighbours)
        with uncounted():
            return self._found(_Examples(examples), options) if examples else None

    def agreed(
        self, function: TextFunction, ours: Taken, neighbours: Sequence[tuple[Taken, Kept]]
    ) -> int:
        """Count the examples among the neighbours that a function explains."""
        mine = known_inputs(ours)
        examples = () if mine is None else _chosen(mine, neighbours)
        with uncounted():
            return sum(function(each.given) == (each.output, each.exit_code) for each in examples)


def _chosen(mine: Given, neighbours: Sequence[tuple[Taken, Kept]]) -> tuple[ExecutedCommand, ...]:
    """Select at most `EXAMPLES` examples among the neighbours, the informative ones first."""
    examples: list[ExecutedCommand] = []
    seen: set[tuple[object, tuple[tuple[str, str], ...]]] = set()
    for theirs, kept in neighbours:
        example = _example(theirs, kept)
        if example is None or not _alike(mine, example.given):
            continue
        # an example with the same text and words adds no information
        key = example.given.text, tuple(sorted(example.given.words.items()))
        if example.given.text is not None and key in seen:
            continue
        seen.add(key)
        examples.append(example)
    # outputs that are empty or equal the input carry little information, so they come last
    examples.sort(key=lambda each: each.output in ("", each.given.text))
    return tuple(examples[:EXAMPLES])


def with_options(taken: Taken, options: tuple[tuple[str, str | None], ...]) -> Taken:
    """Return the command with its options replaced by these."""
    operands = tuple(("", word) for word in taken.form.operands)
    form = replace(taken.form, options=options, order=(*options, *operands))
    return replace(taken, form=form)


def parts(taken: Taken) -> list[Taken]:
    """Return one command for each option, with only this option."""
    return [with_options(taken, (option,)) for option in taken.form.options]


def _applied(mine: Given, function: TextFunction, agreed: int) -> Explained | None:
    spend(function.steps(mine))
    made = function(mine)
    return None if made is None else Explained(*made, function, agreed)


class _Examples:
    """Examples as a cache key: equal examples have equal keys."""

    def __init__(self, items: tuple[ExecutedCommand, ...]) -> None:
        self.items = items
        self._key = tuple(
            (
                each.given.text,
                tuple(sorted(each.given.words.items())),
                each.given.operands,
                each.given.texts,
                each.given.piped,
                each.output,
            )
            for each in items
        )

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Examples) and other._key == self._key


def known_inputs(taken: Taken) -> Given | None:
    """Return the inputs of a command, or None if it reads a file of unknown content.

    Values of a repeated option are joined by newlines into one word.
    """
    words: dict[str, str] = {}
    for name, value in taken.form.options:
        if value is not None:
            words[name] = f"{words[name]}\n{value}" if name in words else value
    form = taken.form
    read: list[Operand] = []
    others: list[Operand] = []
    for each, role in zip_longest(taken.operands, form.roles):
        if each is not None:  # a word that is a pattern or a script may also name a file
            is_word = each.kind != "x" and role is not None and role not in PATHS
            (others if is_word or each.kind not in _TEXTS else read).append(each)
    if any(each.content is None for each in read):
        return None
    if not read and not (form.filters and _reads_nothing(form)):
        return Given(None, words, tuple(each.word for each in others))
    words |= {str(number): each.word for number, each in enumerate(others, 1)}
    texts = tuple((each.content or b"").decode("utf-8", "surrogateescape") for each in read)
    several = len(texts) > 1
    names = tuple(each.word for each in read if several or each.kind != "x")
    piped = not names and not taken.from_file
    return Given("".join(texts), words, names, texts if several else (), piped)


def _reads_nothing(form: Form) -> bool:
    """Whether a filter that gets no text reads no files either, so that its input is empty."""
    trees = {"-r", "-R"} & {name for name, _ in form.options}
    return not trees and PATHS.keys().isdisjoint(form.roles)


def _example(theirs: Taken, kept: Kept) -> ExecutedCommand | None:
    if kept.patch != "[]" or kept.is_error or kept.channels is not None or kept.volatile:
        return None
    if theirs.form.guessed:  # the value of one of the words is unknown
        return None
    found = known_inputs(theirs)
    return None if found is None else ExecutedCommand(found, kept.output, kept.exit_code)


def _alike(mine: Given, theirs: Given) -> bool:
    same = [(each.text is None, not each.texts) for each in (mine, theirs)]
    return mine.words.keys() == theirs.words.keys() and same[0] == same[1]


def _found(examples: _Examples, options: int) -> tuple[list[TextFunction], int] | None:
    """Return the functions of one family that explain most examples, and how many they explain.

    The first has the fewest settings. Each other function differs from it in at most `options`
    settings.
    """
    # short examples first: most functions fail at the first one, where they cost little
    items = sorted(examples.items, key=lambda each: len(each.given.text or ""))
    spared = len(items) // SPARED
    best: tuple[list[TextFunction], int, int] | None = None
    first = items[0].given
    reads, several = first.text is not None, bool(first.texts)
    for function in functions(sorted(first.words), reads=reads, several=several):
        if best is not None and best[1] == len(items):
            if not options or function.family is not best[0][0].family:
                break
            if not _is_near(function, best[0][0], options):
                continue
        failed = agreed = 0
        told: set[tuple[str, int]] = set()
        for each in items:
            made = function(each.given)
            if made == (each.output, each.exit_code):
                agreed += 1
                told.add(made)
                continue
            failed += made is not None
            if failed > spared or (failed > 1 and not agreed):
                break
        else:
            # every function would explain empty output with a constant exit code
            silent = all(not output for output, _ in told) and len(told) < 2
            enough = not silent and (2 * agreed >= len(items) or agreed >= ENOUGH)
            if enough and (best is None or agreed - failed > best[1] - best[2]):
                best = [function], agreed, failed
            elif enough and best and (agreed, failed) == best[1:]:
                best[0].extend([function] * _is_near(function, best[0][0], options))
    return best and best[:2]


def _is_near(function: TextFunction, other: TextFunction, options: int) -> bool:
    """Whether two functions of one family differ in at most `options` settings."""
    if function.family is not other.family or function.places != other.places:
        return False
    return sum(value != other.flags[name] for name, value in function.flags.items()) <= options


Examples: TypeAlias = Callable[[Taken, int], tuple[list[int], list[tuple[Taken, Kept]]]]
"""A function that returns records of commands with exactly the options of a command.

Its second argument is the number of a record to leave out. The result has the numbers of the
records, and their commands with behaviors.
"""


class Inducer:
    """Induces a function of files, else of tables, else of texts."""

    def __init__(self, examples: Examples, with_option: WithOption, matching: Matching) -> None:
        self._examples = examples
        self._induction = Induction()
        interpreter, tables = Interpreter(with_option, matching), Tables(matching)
        self._searches = interpreter.interpret, tables.put_together, self._of_texts

    def induce(self, ours: Taken, without: int) -> Induced | None:
        """Return the prediction of the first function found, or None.

        The record `without` is left out.
        """
        found = (search(ours, without) for search in self._searches)
        return next((each for each in found if each is not None), None)

    def _of_texts(self, ours: Taken, without: int) -> Induced | None:
        """Do the same as `induce` with functions of the input text or of the command's words."""
        numbers, examples = self._examples(ours, without)
        found, asked = self._induction.explain(ours, examples), ours
        if len(ours.form.options) > 1 and (found is None or found.agreed < ENOUGH):
            combined = self._induction.combine(ours, self._beside(without))
            # the combination of single options takes precedence over a few records with all options
            if combined is not None and (
                found is None
                or self._induction.agreed(combined.function, ours, examples) >= found.agreed
            ):
                found, asked = combined, parts(ours)[0]
                numbers, examples = self._examples(asked, without)
        if found is None:
            return None
        kept = Kept(found.exit_code, found.output, "[]")
        return Induced(asked, kept, found.function.name, found.agreed, numbers[0])

    def _beside(self, without: int) -> Callable[[Taken], Sequence[tuple[Taken, Kept]]]:
        return lambda each: self._examples(each, without)[1]
