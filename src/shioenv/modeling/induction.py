"""What a command does, found from examples: the simplest function that explains what was seen.

Which function a command and its options mean is nowhere written: neighbours with the same options
are examples (what they read, their words, what they printed), and a function is taken when it
explains all of them, but for a few of many. It is then applied to what our command reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from shioenv.modeling.filling import Kept, Taken
from shioenv.modeling.texts import Function, Given, functions

EXAMPLES = 12
"""Neighbours that are looked at, at most."""

SPARED = 4
"""Of so many examples one need not be explained (ours: names and encodings of their own)."""

ENOUGH = 3
"""Examples that are enough where a function says nothing of the others (ours)."""

_TEXTS = "flx"


@dataclass(frozen=True)
class Explained:
    """What our command prints by a function, and what speaks for that."""

    output: str
    exit_code: int
    function: Function
    agreed: int
    """Examples that it explains."""


@dataclass(frozen=True)
class Example:
    """A command that was executed: what it was given and what it did."""

    given: Given
    output: str
    exit_code: int


class Induction:
    """Finds functions, and remembers which were found from the same examples."""

    def __init__(self) -> None:
        self._found = lru_cache(maxsize=2_000)(_found)

    def explain(self, ours: Taken, neighbours: Sequence[tuple[Taken, Kept]]) -> Explained | None:
        """What ours prints, told from neighbours, the nearest first; None where no function
        explains them, or they are no examples.
        """
        mine = given(ours)
        found = None if mine is None else self._function(mine, neighbours)
        return None if mine is None or found is None else _applied(mine, *found)

    def combine(
        self,
        ours: Taken,
        apart: Sequence[tuple[Taken, Sequence[tuple[Taken, Kept]]]],
        bare: Sequence[tuple[Taken, Kept]],
    ) -> Explained | None:
        """What ours prints if its options mean together what each means alone: `apart` are ours
        with one option each and neighbours with that one, `bare` neighbours without options.

        None where one of them is not explained, they are of several families, or two change the
        same thing.
        """
        mine = given(ours)
        if mine is None:
            return None
        found = [
            self._function(part, seen)
            for part, seen in ((given(one), seen) for one, seen in apart)
            if part is not None
        ]
        functions = [each[0] for each in found if each is not None]
        if len(functions) < len(apart) or len({each.family.name for each in functions}) > 1:
            return None
        family = functions[0].family
        plain = given(replace(ours, form=replace(ours.form, options=())))
        base = None if plain is None else self._function(plain, bare)
        usual = {name: values[0] for name, values in (family.variants or {}).items()}
        if base is not None and base[0].family.name == family.name:
            usual |= base[0].flags
        flags: dict[str, str] = {}
        for each in functions:
            for name, value in each.flags.items():
                if value != usual[name] and flags.setdefault(name, value) != value:
                    return None
        places = dict(pair for each in functions for pair in each.places)
        if len(set(places.values())) < len(places) or set(places.values()) != mine.words.keys():
            return None
        made = Function(family, tuple(places.items()), {**usual, **flags})
        return _applied(mine, made, min(each[1] for each in found if each is not None))

    def _function(
        self, mine: Given, neighbours: Sequence[tuple[Taken, Kept]]
    ) -> tuple[Function, int] | None:
        """The function that explains those of the neighbours that are examples, and how many."""
        examples: list[Example] = []
        seen: set[tuple[object, tuple[tuple[str, str], ...]]] = set()
        for theirs, kept in neighbours:
            example = _example(theirs, kept)
            if example is None or not _alike(mine, example.given):
                continue
            # the same text with the same words tells nothing new
            read = example.given.text if mine.text is not None else example.given.names
            key = read, tuple(sorted(example.given.words.items()))
            if read is not None and key in seen:
                continue
            seen.add(key)
            examples.append(example)
            if len(examples) == EXAMPLES:
                break
        return self._found(_Examples(tuple(examples))) if examples else None


def _applied(mine: Given, function: Function, agreed: int) -> Explained | None:
    made = function(mine)
    return None if made is None else Explained(*made, function, agreed)


class _Examples:
    """Examples, equal where they are the same ones."""

    def __init__(self, items: tuple[Example, ...]) -> None:
        self.items = items
        self._key = tuple(
            (
                each.given.text,
                tuple(sorted(each.given.words.items())),
                each.given.operands,
                each.given.names,
                each.output,
            )
            for each in items
        )

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Examples) and other._key == self._key


def given(taken: Taken) -> Given | None:
    """What a command is given; None where it reads several texts, or one that nobody knows."""
    words: dict[str, str] = {}
    for name, value in taken.form.options:
        if value is not None:
            if name in words:
                return None
            words[name] = value
    read = [each for each in taken.operands if each.kind in _TEXTS]
    others = [each for each in taken.operands if each.kind not in _TEXTS]
    if len(read) > 1 or any(each.content is None for each in read):
        return None
    if not read:
        listed = others[0].names if len(others) == 1 else taken.here if not others else None
        return Given(None, words, tuple(each.word for each in others), listed)
    words |= {str(number): each.word for number, each in enumerate(others, 1)}
    text = (read[0].content or b"").decode("utf-8", "surrogateescape")
    return Given(text, words, tuple(each.word for each in read if each.kind != "x"))


def _example(theirs: Taken, kept: Kept) -> Example | None:
    if kept.patch != "[]" or kept.is_error or kept.channels is not None or kept.volatile:
        return None
    found = given(theirs)
    return None if found is None else Example(found, kept.output, kept.exit_code)


def _alike(mine: Given, theirs: Given) -> bool:
    same = [(each.text is None, each.names is None) for each in (mine, theirs)]
    return same[0] == same[1] and mine.words.keys() == theirs.words.keys()


def _found(examples: _Examples) -> tuple[Function, int] | None:
    """The first function that explains most of the examples, and how many."""
    # short ones first: most functions fail at once, and cost little there
    items = sorted(examples.items, key=lambda each: len(each.given.text or ""))
    spared = len(items) // SPARED
    best: tuple[Function, int, int] | None = None
    first = items[0].given
    for function in functions(sorted(first.words), reads=first.text is not None):
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
            # one and the same silence is explained by anything
            silent = all(not output for output, _ in told) and len(told) < 2
            enough = not silent and (2 * agreed >= len(items) or agreed >= ENOUGH)
            if enough and (best is None or agreed - failed > best[1] - best[2]):
                best = function, agreed, failed
        if best is not None and best[1] == len(items):
            break
    return best and best[:2]
