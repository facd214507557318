"""Differences made as small as they get, by executing both sides with less and less.

First the lines before the input, its commands, redirections and arguments are left out, then files
of the start directory. What is left is minimal: with any one thing less, both sides do the same, or
they differ elsewhere.
"""

from __future__ import annotations

import json
import posixpath
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Self

from shioenv.bash.words import quoted
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import REDIRECTIONS, SEPARATORS, Argument, Input, Role
from shioenv.domain.predictor import PatchLevel
from shioenv.files.unfinished import Parts
from shioenv.system.store import IndexEntry, System
from shioenv_eval.asking import PredictorPool
from shioenv_eval.conform.truth import (
    AskedCase,
    CaseMachine,
    behavior_of_truth,
    truth_json,
)
from shioenv_eval.conform.verdicts import Classes, classes_of
from shioenv_eval.evaluate import said_json, said_of
from shioenv_eval.metrics import Said


@dataclass(frozen=True, slots=True)
class Compared:
    """What both sides did with an input, and where they differ."""

    truth: Behavior
    said: Said
    classes: Classes


@dataclass(frozen=True, slots=True)
class Reduced:
    """What is left of a case."""

    asked: AskedCase
    """The case, its lines before and its arguments; the files are still there."""
    gone: tuple[str, ...] = ()
    """Files of the start directory that are left out, named relative to it, sorted."""
    onward: tuple[int, int] | None = field(default=None, compare=False)
    """Where `Files.less` goes on: how many files it left out at once, and at which place."""

    @property
    def whole(self) -> AskedCase:
        """What both sides are asked: files are left out by a first line, `rm -rf`."""
        if not self.gone:
            return self.asked
        return replace(self.asked, history=(self._removal, *self.asked.history))

    @property
    def listing(self) -> AskedCase:
        """A list of the files that are left out, after the line that removes them."""
        shell_input = Input.single("ls", map(Argument, ("-d", "--", *map(quoted, self.gone))))
        return replace(self.asked, history=(self._removal,), input=shell_input)

    @property
    def _removal(self) -> str:
        return f"rm -rf -- {' '.join(map(quoted, self.gone))}"


class Sides:
    """The machine and the other side, asked about the same; every answer is remembered.

    `kept` is a directory of `unfinished`, where the answers are kept for the next call. A context
    manager, which is to be entered where `kept` is given.
    """

    def __init__(
        self,
        machine: CaseMachine,
        other: PredictorPool,
        level: PatchLevel,
        kept: Path | None = None,
    ) -> None:
        self._machine, self._other, self._level = machine, other, level
        self._truths = Parts[Behavior | None](kept, "truths", truth_json, behavior_of_truth)
        self._answers = Parts[Said](kept, "answers", said_json, said_of)
        self.known: dict[tuple[str, tuple[str, ...], str], Compared | None] = {}
        """What was compared, by `AskedCase.key`; None where the machine's own runs disagree."""

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            for parts in (self._truths, self._answers):
                opened.enter_context(parts)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._opened.close()

    @property
    def kept(self) -> int:
        """How many answers of the other side an earlier call left."""
        return self._answers.kept

    def compare(self, asked: Iterable[AskedCase]) -> None:
        """Asks both sides about what is not known yet. Errors: those of executors and pools."""
        new = {name_of(one): one for one in asked if one.key not in self.known}
        truths = self._truths.values
        left = [name for name in new if name not in truths]
        tasks = ((number, new[name]) for number, name in enumerate(left))
        for number, behavior in self._machine.behaviors(tasks):
            self._truths.add(left[number], behavior)
        steady = {name: new[name] for name in new if truths[name] is not None}
        self.known |= {one.key: None for one in new.values()}
        for name, said in self.answers(steady):
            truth = truths[name]
            assert truth is not None
            self.known[new[name].key] = Compared(truth, said, self.classes(truth, said))

    def answers(self, asked: Mapping[str, AskedCase]) -> Iterator[tuple[str, Said]]:
        """What the other side says of each, asked unless it is kept; the kept answers come first.

        Errors: those of `PredictorPool.said`.
        """
        found = self._answers.values
        left = [name for name in asked if name not in found]
        yield from [(name, found[name]) for name in asked if name in found]
        tasks = [(number, asked[name].task) for number, name in enumerate(left)]
        for number, said in self._other.said(tasks):
            yield left[number], self._answers.add(left[number], said)

    def classes(self, truth: Behavior, said: Said) -> Classes:
        """Where an answer differs, at the level of the comparison."""
        return classes_of(truth, said, self._level)

    def said(self, asked: Mapping[int, AskedCase]) -> dict[int, Said]:
        """What the other side says of each, asked anew. Errors: those of `PredictorPool.said`."""
        return dict(self._other.said([(number, one.task) for number, one in asked.items()]))


def name_of(asked: AskedCase) -> str:
    """The name under which answers about a case are kept."""
    return json.dumps(asked.key)


ROUND = 64
"""Smaller ones that are tried in one round, at least (ours): enough to keep the workers busy."""

TRIES = 4
"""Smaller ones of one difference that are tried in one round, at most (ours).

Where the first would do, the others are tried in vain."""


@dataclass(slots=True)
class _Shrinking:
    """A difference that is being made smaller."""

    left: Reduced
    wanted: Classes
    untried: Iterator[Reduced]
    trying: list[Reduced] = field(default_factory=list)
    """What is tried in this round, the smallest first."""


def shrunk(
    sides: Sides,
    differences: Sequence[tuple[Reduced, Classes]],
    smaller: Callable[[Reduced], Iterator[Reduced]],
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[Reduced]:
    """For each difference the smallest that leaving out leads to, in the order of `differences`.

    `smaller` gives what is tried next, the smallest first. What is tried counts where both sides
    still differ, and in no class in which they did not differ before. `report` is told how many
    differences are done, and of how many.
    """
    every = [_Shrinking(left, wanted, smaller(left)) for left, wanted in differences]
    open_ = every
    while open_:
        tries = min(TRIES, -(-ROUND // len(open_)))
        for one in open_:
            one.trying = list(islice(one.untried, tries))
        open_ = [one for one in open_ if one.trying]
        sides.compare(reduced.whole for one in open_ for reduced in one.trying)
        for one in open_:
            for reduced in one.trying:
                compared = sides.known[reduced.whole.key]
                if compared is not None and compared.classes and compared.classes <= one.wanted:
                    one.left, one.untried = reduced, smaller(reduced)
                    break
        report(len(every) - len(open_), len(every))
    return [one.left for one in every]


def less_input(reduced: Reduced) -> Iterator[Reduced]:
    """The case with less of its lines, commands, redirections or arguments, the smallest first."""
    asked = reduced.asked
    seen = {asked.key}
    inputs = [one for one in _smaller_inputs(asked.input) if one.tokens]
    histories = list(_smaller_histories(asked.history))
    tried = [replace(asked, history=lines) for lines in histories]
    tried += [replace(asked, input=one) for one in inputs]
    for one in tried:
        if one.key not in seen:
            seen.add(one.key)
            yield replace(reduced, asked=one)


def _smaller_histories(history: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if len(history) > 1:
        yield ()
    for place in range(len(history)):
        yield (*history[:place], *history[place + 1 :])


def _smaller_inputs(shell_input: Input) -> Iterator[Input]:
    tokens = shell_input.tokens
    spans = list(shell_input.spans())
    if len(spans) > 1:
        yield from (Input(tokens[start:stop]) for start, stop in spans)
    if len(spans) > 2:
        for start, stop in spans:
            # the separator behind a command goes with it, and behind the last the one before it
            last = stop == len(tokens)
            yield Input((*tokens[: start - last], *tokens[stop + (not last) :]))
    for place, one in enumerate(tokens):
        text = one.argument.text
        if one.role is Role.OPERATOR and text not in SEPARATORS:
            yield Input((*tokens[:place], *tokens[place + 1 + (text in REDIRECTIONS) :]))
    arguments = range(shell_input.n_arguments)
    if len(arguments) > 1:
        yield shell_input.keep(())
    if len(arguments) > 2:
        yield from (shell_input.keep((kept,)) for kept in arguments)
    for gone in arguments:
        yield shell_input.keep(kept for kept in arguments if kept != gone)


class Files:
    """The files beneath a system's start directories, which can be left out."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._inside: dict[str, list[IndexEntry]] = {}
        for path, entry in sorted(system.index.items()):
            self._inside.setdefault(posixpath.dirname(path), []).append(entry)

    def left(self, reduced: Reduced) -> list[IndexEntry]:
        """The files of the start directory that are left, parents first."""
        start = reduced.asked.cwd
        gone = {posixpath.join(start, name) for name in reduced.gone}
        return [entry for entry in self._beneath(start) if not _is_gone(entry.path, gone)]

    def _beneath(self, directory: str) -> Iterator[IndexEntry]:
        for entry in self._inside.get(directory, ()):
            yield entry
            if stat.S_ISDIR(entry.mode):
                yield from self._beneath(entry.path)

    def less(self, reduced: Reduced) -> Iterator[Reduced]:
        """The case with fewer files: without all, without those that it does not name, then less.

        Then as many at once as half of them, a quarter and so on, and each alone. A case that was
        found so goes on from where it was found. Last each file alone is tried once more. Where a
        directory has to stay, what lies in it may go.
        """
        start = reduced.asked.cwd
        left = [posixpath.relpath(entry.path, start) for entry in self.left(reduced)]
        seen = {reduced.gone}
        for place, names in self._tried(reduced, left):
            gone = _outermost({*reduced.gone, *names})
            if gone not in seen:
                seen.add(gone)
                yield replace(reduced, gone=gone, onward=(len(names), place))

    def _tried(self, reduced: Reduced, left: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
        """Which of the files that are left are left out next, with the place of the first."""
        count = len(left)
        if reduced.onward is None:
            yield 0, [name for name in left if "/" not in name]
            yield 0, self._unnamed(reduced, left)
        size, place = reduced.onward or (count, 0)
        size = max(1, min(size, -(-count // 2)))
        while True:
            for first in range(place, count, size):
                yield first, left[first : first + size]
            if size == 1:
                break
            size, place = -(-size // 2), 0
        for first in range(count):
            yield first, left[first : first + 1]

    def _unnamed(self, reduced: Reduced, left: Sequence[str]) -> Sequence[str]:
        """The files that the case does not name, and in which none lies that it names."""
        text = "\n".join((*reduced.asked.history, reduced.asked.input.text))
        inside = {posixpath.dirname(name) for name in left}
        return [
            name
            for name in left
            if name.rpartition("/")[2] not in text
            and (name not in inside or _none_named(name, left, text))
        ]


def _none_named(directory: str, names: Iterable[str], text: str) -> bool:
    """Whether a text has the name of nothing that lies beneath a directory."""
    beneath = (name for name in names if name.startswith(f"{directory}/"))
    return not any(name.rpartition("/")[2] in text for name in beneath)


def _is_gone(path: str, gone: set[str]) -> bool:
    while path != "/":
        if path in gone:
            return True
        path = posixpath.dirname(path)
    return False


def _outermost(names: set[str]) -> tuple[str, ...]:
    """The names, sorted, without those that lie beneath another one."""
    absolute = {f"/{name}" for name in names}
    return tuple(
        sorted(one for one in names if not _is_gone(posixpath.dirname(f"/{one}"), absolute))
    )
