"""Minimisation of cases on which the machine and another side differ (delta debugging).

Parts of a case are removed, and both sides run again. First the history and the input's commands,
redirections and arguments are removed, then files of the start directory. The result is minimal: if
any single part is removed, both sides agree or differ elsewhere.
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
from shioenv_eval.conform.truth import (
    CaseInput,
    CaseMachine,
    behavior_of_truth,
    truth_json,
)
from shioenv_eval.conform.verdicts import Classes, classes_of
from shioenv_eval.evaluate import format_answer, parse_answer
from shioenv_eval.metrics import PredictorAnswer
from shioenv_eval.predictor_pool import PredictorPool


@dataclass(frozen=True, slots=True)
class Compared:
    """The answers of both sides to an input, and the classes in which they differ."""

    truth: Behavior
    said: PredictorAnswer
    classes: Classes


@dataclass(frozen=True, slots=True)
class Reduced:
    """A case after removals."""

    asked: CaseInput
    """The case with its remaining history and arguments; `gone` is not applied yet."""
    gone: tuple[str, ...] = ()
    """Removed files of the start directory, relative to it, sorted."""
    onward: tuple[int, int] | None = field(default=None, compare=False)
    """Position for continuing `Files.less`: the number of files removed at once, and an index."""

    @property
    def whole(self) -> CaseInput:
        """The case as sent to both sides: its first line removes the files with `rm -rf`."""
        if not self.gone:
            return self.asked
        return replace(self.asked, history=(self._removal, *self.asked.history))

    @property
    def listing(self) -> CaseInput:
        """A case that lists the removed files after the line that removes them."""
        shell_input = Input.single("ls", map(Argument, ("-d", "--", *map(quoted, self.gone))))
        return replace(self.asked, history=(self._removal,), input=shell_input)

    @property
    def _removal(self) -> str:
        return f"rm -rf -- {' '.join(map(quoted, self.gone))}"


class Sides:
    """The machine and the other side, asked the same questions; all answers are cached.

    `kept` is a directory from `unfinished`, in which answers are cached for the next call. If
    `kept` is given, the context manager must be entered.
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
        self._answers = Parts[PredictorAnswer](kept, "answers", format_answer, parse_answer)
        self.known: dict[tuple[str, tuple[str, ...], str], Compared | None] = {}
        """Comparisons by `CaseInput.key`; None if the machine's own runs disagree."""

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
        """The number of the other side's answers restored from an earlier call."""
        return self._answers.kept

    def compare(self, asked: Iterable[CaseInput]) -> None:
        """Ask both sides about cases that are not cached yet.

        Errors: those of executors and pools.
        """
        new = {case_key(one): one for one in asked if one.key not in self.known}
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

    def answers(self, asked: Mapping[str, CaseInput]) -> Iterator[tuple[str, PredictorAnswer]]:
        """Yield the other side's answer to each case; cached answers come first.

        Errors: those of `PredictorPool.said`.
        """
        found = self._answers.values
        left = [name for name in asked if name not in found]
        yield from [(name, found[name]) for name in asked if name in found]
        tasks = [(number, asked[name].task) for number, name in enumerate(left)]
        for number, said in self._other.said(tasks):
            yield left[number], self._answers.add(left[number], said)

    def classes(self, truth: Behavior, said: PredictorAnswer) -> Classes:
        """Return the classes in which an answer differs, at the level of the comparison."""
        return classes_of(truth, said, self._level)

    def said(self, asked: Mapping[int, CaseInput]) -> dict[int, PredictorAnswer]:
        """Ask the other side about each case, bypassing the cache.

        Errors: those of `PredictorPool.said`.
        """
        return dict(self._other.said([(number, one.task) for number, one in asked.items()]))


def case_key(asked: CaseInput) -> str:
    """Return the key under which answers about a case are cached."""
    return json.dumps(asked.key)


ROUND = 64
"""Minimum number of candidates tried in one round (our choice): enough to keep the workers busy."""

TRIES = 4
"""Maximum number of candidates for one difference in one round (our choice).

If the first candidate succeeds, trying the others was unnecessary.
"""


@dataclass(slots=True)
class _Shrinking:
    """A difference that is being minimised."""

    left: Reduced
    wanted: Classes
    untried: Iterator[Reduced]
    trying: list[Reduced] = field(default_factory=list)
    """The candidates of this round, the smallest first."""


def shrunk(
    sides: Sides,
    differences: Sequence[tuple[Reduced, Classes]],
    smaller: Callable[[Reduced], Iterator[Reduced]],
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[Reduced]:
    """Minimise each difference, and return the results in the order of `differences`.

    `smaller` yields the candidates for the next step, the smallest first. A candidate is accepted
    if both sides still differ, and in no class in which they agreed before. `report` is called with
    the number of differences done and the total.
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
    """Yield the case with fewer lines, commands, redirections or arguments, the smallest first."""
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
            # remove the separator after a command, or the one before the last command
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
    """The files below a system's start directories that can be removed."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._inside: dict[str, list[IndexEntry]] = {}
        for path, entry in sorted(system.index.items()):
            self._inside.setdefault(posixpath.dirname(path), []).append(entry)

    def left(self, reduced: Reduced) -> list[IndexEntry]:
        """Return the remaining files of the start directory, parents first."""
        start = reduced.asked.cwd
        gone = {posixpath.join(start, name) for name in reduced.gone}
        return [entry for entry in self._beneath(start) if not _is_gone(entry.path, gone)]

    def _beneath(self, directory: str) -> Iterator[IndexEntry]:
        for entry in self._inside.get(directory, ()):
            yield entry
            if stat.S_ISDIR(entry.mode):
                yield from self._beneath(entry.path)

    def less(self, reduced: Reduced) -> Iterator[Reduced]:
        """Yield the case with fewer files.

        The first candidate keeps no files, the second only the files that the case names. Then
        blocks of half the files, a quarter and so on are removed, down to single files. If a
        candidate is accepted, the search continues from its position. Finally each file is tried
        alone once more. If a directory must remain, its contents may still be removed.
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
        """Yield the next groups of files to remove, each with the index of its first file."""
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
        """Return the files that the case does not name and that contain no file that it names."""
        text = "\n".join((*reduced.asked.history, reduced.asked.input.text))
        inside = {posixpath.dirname(name) for name in left}
        return [
            name
            for name in left
            if name.rpartition("/")[2] not in text
            and (name not in inside or _none_named(name, left, text))
        ]


def _none_named(directory: str, names: Iterable[str], text: str) -> bool:
    """Whether a text names nothing below a directory."""
    beneath = (name for name in names if name.startswith(f"{directory}/"))
    return not any(name.rpartition("/")[2] in text for name in beneath)


def _is_gone(path: str, gone: set[str]) -> bool:
    while path != "/":
        if path in gone:
            return True
        path = posixpath.dirname(path)
    return False


def _outermost(names: set[str]) -> tuple[str, ...]:
    """Return the names, sorted, without those below another one."""
    absolute = {f"/{name}" for name in names}
    return tuple(
        sorted(one for one in names if not _is_gone(posixpath.dirname(f"/{one}"), absolute))
    )
