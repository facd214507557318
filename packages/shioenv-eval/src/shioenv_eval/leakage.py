"""Leakage: overlap between a training set and a test set."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from shioenv.bash.normal import normal
from shioenv.behavior.compare import nearest
from shioenv.dataset.input_lines import read_lines, shipped_parser
from shioenv.dataset.manifest import finished_manifest
from shioenv.dataset.record_reader import read_records
from shioenv.domain.inputs import SEPARATORS, Input, Role, without_start
from shioenv.errors import InputError, UsageError
from shioenv.files.regular import is_directory

THRESHOLD = 0.9
"""Minimum similarity of a near duplicate (our choice)."""

BATCH = 16_384
"""Number of training inputs that are buffered before they are compared with test inputs."""


class LeakLevel(StrEnum):
    """The kinds of leak, the strongest first; only the strongest counts."""

    EXACT = "exact"
    """The same line, and the same start directory if both are known."""
    REORDERED = "reordered"
    """The same arguments in another order or bundling, or in another start directory."""
    NEAR = "near"
    """The same commands, and a line whose similarity reaches the threshold."""
    FORM = "form"
    """The same normal form: only numbers and names differ (`shioenv.bash.normal`)."""


@dataclass(frozen=True, slots=True)
class Leak:
    """A test input and the training input that leaks it."""

    level: LeakLevel
    similarity: float
    """The similarity of the two lines at the level `near`; otherwise 1."""
    test: int
    """Index in the test set, from 0."""
    test_input: str
    train: int
    """Index in the training set, from 0."""
    train_input: str

    @property
    def strength(self) -> tuple[int, float]:
        """Sort key: of two leaks, the one with the larger strength counts."""
        return -list(LeakLevel).index(self.level), self.similarity

    def to_json(self) -> dict[str, Any]:
        """Return the leak as a JSON object."""
        return asdict(self) | {"similarity": round(self.similarity, 4)}


@dataclass(frozen=True, slots=True)
class Leakage:
    """The leakage from a training set into a test set."""

    train: int
    """Inputs of the training set."""
    test: int
    """Inputs of the test set."""
    threshold: float
    leaks: tuple[Leak, ...]
    """One leak for each leaked test input, in the order of the test set."""
    known_commands: int
    """Test inputs whose set of commands occurs in the training set."""
    by_command: dict[str, tuple[int, int]]
    """The numbers of test inputs and of leaked ones, by first command."""

    def count(self, level: LeakLevel) -> int:
        """Return the number of test inputs leaked at this level."""
        return sum(leak.level is level for leak in self.leaks)

    @property
    def ok(self) -> bool:
        """Whether no test input is in the training set (`LeakLevel.EXACT`)."""
        return not self.count(LeakLevel.EXACT)

    def to_json(self) -> dict[str, Any]:
        """Return the findings as a JSON object."""
        return {
            **{name: getattr(self, name) for name in ("ok", "train", "test", "threshold")},
            **{level.value: self.count(level) for level in LeakLevel},
            "clean": self.test - len(self.leaks),
            "known_commands": self.known_commands,
            "by_command": {
                name: {"test": test, "given_away": leaked}
                for name, (test, leaked) in self.by_command.items()
            },
            "leaks": [leak.to_json() for leak in self.leaks],
        }


@dataclass(frozen=True, slots=True)
class _Known:
    """An input in the forms in which it is compared."""

    text: str
    """The line, without the start directory."""
    cwd: str
    """Empty if it is unknown."""
    commands: tuple[str, ...]
    key: tuple[Any, ...]
    """Equal for inputs with the same arguments in any order."""
    form: str | None
    """The normal form; None if the input has none."""


def find_leaks(
    train: str | Path,
    test: str | Path,
    *,
    threshold: float = THRESHOLD,
    report: Callable[[int], None] = lambda done: None,
) -> Leakage:
    """Find the inputs of `test` that are leaked by inputs of `train`.

    Each set is a dataset's directory or a file of inputs. A file holds one input per line, plain or
    as a JSON object with `input`; a leading `cd` is the start directory. The test set is held in
    memory, the training set is read once. Near duplicates are searched among inputs with the same
    commands. `report` is called with the number of training inputs read so far.

    Errors: UsageError for a threshold that is not above 0 and at most 1, for a set without inputs,
    or for an unfinished dataset. UnknownDatasetError, DatasetCorruptError, ImportFileError.
    """
    if not 0 < threshold <= 1:
        raise UsageError(f"threshold {threshold}: expected a number above 0 and at most 1")
    finder = _Finder(list(_inputs(Path(test))), threshold)
    if not finder.tests:
        raise UsageError(f"the test set {test} has no inputs")
    for number, known in enumerate(_inputs(Path(train))):
        finder.add(number, known)
        report(number + 1)
    if not finder.trained:
        raise UsageError(f"the training set {train} has no inputs")
    return finder.leakage()


class _Finder:
    def __init__(self, tests: list[_Known], threshold: float) -> None:
        self.tests, self._threshold = tests, threshold
        self.trained = 0
        self._by_text: dict[str, list[int]] = defaultdict(list)
        self._by_key: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        self._by_form: dict[str | None, list[int]] = defaultdict(list)
        self._by_commands: dict[tuple[str, ...], list[int]] = defaultdict(list)
        self._waiting: dict[tuple[str, ...], list[tuple[int, str]]] = defaultdict(list)
        self._n_waiting = 0
        self._sets: set[frozenset[str]] = set()
        self._leaks: dict[int, Leak] = {}
        for number, test in enumerate(tests):
            self._by_text[test.text].append(number)
            self._by_key[test.key].append(number)
            if test.form is not None:
                self._by_form[test.form].append(number)
            self._by_commands[test.commands].append(number)

    def add(self, number: int, train: _Known) -> None:
        """Compare the next training input with the test inputs."""
        self.trained += 1
        self._sets.add(frozenset(train.commands))
        for test in self._by_text.get(train.text, ()):
            cwd = self.tests[test].cwd
            same = not cwd or not train.cwd or cwd == train.cwd
            self._keep(
                test, LeakLevel.EXACT if same else LeakLevel.REORDERED, 1.0, number, train.text
            )
        for test in self._by_key.get(train.key, ()):
            self._keep(test, LeakLevel.REORDERED, 1.0, number, train.text)
        for test in self._by_form.get(train.form, ()):
            self._keep(test, LeakLevel.FORM, 1.0, number, train.text)
        if train.commands in self._by_commands:
            self._waiting[train.commands].append((number, train.text))
            self._n_waiting += 1
            if self._n_waiting == BATCH:
                self._compare()

    def leakage(self) -> Leakage:
        """Return the findings for all training inputs."""
        self._compare()
        totals: Counter[str] = Counter(_first(test) for test in self.tests)
        leaked: Counter[str] = Counter(_first(self.tests[number]) for number in self._leaks)
        return Leakage(
            train=self.trained,
            test=len(self.tests),
            threshold=self._threshold,
            leaks=tuple(leak for _, leak in sorted(self._leaks.items())),
            known_commands=sum(frozenset(test.commands) in self._sets for test in self.tests),
            by_command={
                name: (count, leaked[name])
                for name, count in sorted(totals.items(), key=lambda item: (-item[1], item[0]))
            },
        )

    def _compare(self) -> None:
        """Search the buffered training inputs for near duplicates."""
        for commands, waiting in self._waiting.items():
            tests = self._by_commands[commands]
            texts = [self.tests[number].text for number in tests]
            for test, best in zip(
                tests, nearest(texts, [text for _, text in waiting], self._threshold), strict=True
            ):
                if best is not None:
                    self._keep(test, LeakLevel.NEAR, best[0], *waiting[best[1]])
        self._waiting.clear()
        self._n_waiting = 0

    def _keep(self, test: int, level: LeakLevel, similarity: float, train: int, text: str) -> None:
        leak = Leak(level, similarity, test, self.tests[test].text, train, text)
        if leak.strength > self._leaks.setdefault(test, leak).strength:
            self._leaks[test] = leak


def _first(known: _Known) -> str:
    return known.commands[0] if known.commands else ""


def _inputs(path: Path) -> Iterator[_Known]:
    if is_directory(path) or not os.path.lexists(path):
        finished_manifest(path)
        for record in read_records(path, check=True):
            yield _known(Input.from_marked(record.input_args), record.cwd)
        return
    for _, line in read_lines(path):
        text = line.decode("utf-8", "replace").replace("\0", " ")
        document = _document(text)
        if "suite" in document:  # a suite's header; its cases nest their inputs
            continue
        document = document.get("question", document)
        known = _recorded(document)
        if known is None and text.strip():
            own = document.get("input")
            cwd, rest = without_start((own if isinstance(own, str) else text).strip())
            known = _known(shipped_parser().parse(rest), cwd)
        if known is not None:
            yield known


def _document(line: str) -> dict[str, Any]:
    """Parse a line as a JSON object; empty if it is not one."""
    try:
        return dict(json.loads(line)) if line.startswith("{") else {}
    except (ValueError, RecursionError):
        return {}


def _recorded(document: dict[str, Any]) -> _Known | None:
    """Return the input of a line that holds a record, also a released one; else None."""
    tokens = document.get("input_args")
    if not isinstance(tokens, list) or not all(isinstance(t, str) and t for t in tokens):
        return None
    try:
        return _known(Input.from_marked(tokens), str(document.get("cwd") or ""))
    except InputError:
        return None


def _known(shell_input: Input, cwd: str) -> _Known:
    key: list[Any] = []
    arguments: list[str] = []
    for token in shell_input.tokens:
        text = token.argument.text
        if token.role is Role.ARGUMENT:
            arguments.append(f"-{text}" if token.argument.joins_left else text)
            continue
        if token.role is Role.OPERATOR and text in SEPARATORS:
            key.append(tuple(sorted(arguments)))
            arguments = []
        key.append(text)
    key.append(tuple(sorted(arguments)))
    return _Known(
        shell_input.text,
        cwd,
        tuple(segment.command for segment in shell_input.segments),
        tuple(key),
        normal(shell_input.text),
    )


def inputs_of(path: str | Path) -> Iterator[str]:
    """Yield the inputs of a dataset or a file without start directories, as `find_leaks` does.

    Errors: those of `find_leaks`.
    """
    return (known.text for known in _inputs(Path(path)))
