"""Suites: inputs with ground truth from several runs, and the parts that vary between them.

A suite file is JSON Lines: a head with the digest of inputs, system and settings, then one case per
line. It is compressed if its name ends with `.gz`. The package contains some suites, the frozen
answers, so that predictors can be evaluated without a built system.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from shioenv.dataset.questions import Question, question_of, read_questions
from shioenv.domain.answer_json import behavior_json, behavior_of
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import keys
from shioenv.domain.runner import Pristine, State
from shioenv.errors import AnswerError, PatchError, SuiteError
from shioenv.files.documents import parse_json
from shioenv.files.durable import atomic_write, storage_errors
from shioenv.files.regular import LARGEST_LIST, read_regular
from shioenv.text import short_repr
from shioenv_eval.mask import Mask
from shioenv_eval.patches import moves
from shioenv_eval.places import utilities

SCHEMA = 1

FROZEN = ("public-test", "sessions-200", "conformance")
"""Names of the suites that the package contains."""


@dataclass(frozen=True)
class SuiteCase:
    """An input with its gold: the machine's recorded behavior."""

    question: Question
    runs: tuple[Behavior, ...]
    """The behavior in each run, at least one, in the order of the runs."""
    moved: Mapping[str, Any] = field(default_factory=dict)
    """Values before the runs at the source paths of move operations, by path."""

    def __repr__(self) -> str:
        question = self.question
        return short_repr(self, {"id": question.id, "input": question.input, "runs": self.runs})

    @cached_property
    def gold(self) -> tuple[Behavior, ...]:
        """The gold runs: the distinct behaviors of `runs`."""
        different: list[Behavior] = []
        for run in self.runs:
            if run not in different:
                different.append(run)
        return tuple(different)

    @cached_property
    def mask(self) -> Mask:
        """The variation between the runs."""
        return Mask.of(self.gold, self.moved)

    def state(self, start: str, pristine: Pristine | None = None) -> State:
        """Return the state of the input; `start` is the system's first start directory."""
        cwd = self.question.cwd or start
        return State(cwd=cwd, history=self.question.history, pristine=pristine)

    def to_json(self) -> dict[str, Any]:
        """Return the case as a line of a suite."""
        return {
            "question": self.question.to_json(),
            "utilities": list(utilities(self.question.input)),
            "gold": [behavior_json(behavior) for behavior in self.gold],
            "runs": [self.gold.index(run) for run in self.runs],
            "moved": dict(self.moved),
            "mask": self.mask.to_json(),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], number: int, source: str) -> SuiteCase:
        """Parse the output of `to_json`; errors name the source and line. Errors: SuiteError."""
        try:
            gold = [behavior_of(behavior) for behavior in document["gold"]]
            runs = tuple(gold[number] for number in document["runs"])
            case = cls(question_of(document["question"], number, source), runs, document["moved"])
        except (AnswerError, PatchError, KeyError, TypeError, IndexError) as error:
            raise SuiteError(f"{source}:{number}: invalid case: {error}") from None
        if not runs:
            raise SuiteError(f"{source}:{number}: the case has no runs")
        return case


@dataclass(frozen=True)
class Head:
    """The first line of a suite: the origin of its cases."""

    name: str
    """The name of the file that the inputs are from, or `public` or one of its halves."""
    system: str
    system_digest: str
    start: str
    """The system's first start directory, used for inputs that have none."""
    runs: int
    """Runs of each input."""
    seconds_apart: float
    """Minimum seconds between the first and the last run of an input."""
    limits: Mapping[str, Any]
    """The `Limits` of every run, by name."""
    digest: str = ""
    """SHA-256 (hex) of inputs, system and settings; it identifies the suite's questions."""
    sha256: str = ""
    """SHA-256 (hex) of the cases' lines; empty if the suite was never written."""
    schema: int = SCHEMA


@dataclass(frozen=True)
class Suite:
    """Cases, with a head that describes their origin."""

    head: Head
    cases: tuple[SuiteCase, ...]

    def __repr__(self) -> str:
        facts = {"name": self.head.name, "system": self.head.system, "inputs": len(self.cases)}
        return short_repr(self, facts)

    @property
    def volatile(self) -> int:
        """The number of inputs with any variation."""
        return sum(case.mask.volatile for case in self.cases)

    def stats(self) -> dict[str, Any]:
        """Count the cases by properties of their questions and of the behavior in the first run."""
        cases = self.cases
        steps = Counter(case.question.steps for case in cases)
        channels = Counter(name for case in cases for name in case.mask.channels)
        used = Counter(name for case in cases for name in utilities(case.question.input))
        first = [case.runs[0] for case in cases]
        return {
            "name": self.head.name,
            "system": self.head.system,
            "digest": self.head.digest,
            "inputs": len(cases),
            "steps": {name: steps[name] for name in ("single", "multi")},
            "kinds": dict(Counter(case.question.kind or "" for case in cases).most_common()),
            "with_history": sum(bool(case.question.history) for case in cases),
            "volatile": self.volatile,
            "volatile_channels": dict(channels.most_common()),
            "exit_0": sum(run.exit_code == 0 for run in first),
            "nothing": sum(not run.exit_code and not run.output and not run.patch for run in first),
            "with_patch": sum(bool(run.patch) for run in first),
            "timed_out": sum(run.timed_out for run in first),
            "utilities": dict(used.most_common()),
        }


def head_digest(questions: Sequence[Question], system_digest: str, settings: Any) -> str:
    """Return the digest of a head: SHA-256 (hex) of questions, the system's digest and settings."""
    asked = [question.to_json() for question in questions]
    text = json.dumps([asked, system_digest, settings], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def write_suite(suite: Suite, path: str | Path) -> None:
    """Write a suite, completely or not at all. Errors: DatasetStorageError."""
    content = b"".join(_encoded(suite))
    path = Path(path)
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, content)


def _encoded(suite: Suite) -> tuple[bytes, bytes]:
    body = b"".join(_line(case.to_json()) for case in suite.cases)
    return _line({"suite": asdict(suite.head) | {"sha256": hashlib.sha256(body).hexdigest()}}), body


def _line(document: Mapping[str, Any]) -> bytes:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass") + b"\n"


def read_suite(path: str | Path) -> Suite:
    """Read a suite from a file, or one of `FROZEN` if no file has this name.

    Errors: SuiteError if the file cannot be read, is not a suite, has another schema, or was
    changed after recording.
    """
    try:
        first, _, body = _content(path).partition(b"\n")
    except OSError as error:
        raise SuiteError(
            f"{path} cannot be read: {error.strerror}", hint=_HINT, named=error
        ) from None
    try:
        document = parse_json(first)["suite"]
        if document["schema"] != SCHEMA:
            raise SuiteError(
                f"{path} has schema version {document['schema']}; this release reads {SCHEMA}",
                hint=_HINT,
            )
        head = Head(**document)
    except (ValueError, KeyError, TypeError):
        raise SuiteError(f"{path} is not a suite", hint=_HINT) from None
    if hashlib.sha256(body).hexdigest() != head.sha256:
        raise SuiteError(f"{path} was modified after recording: its checksum differs", hint=_HINT)
    return Suite(head, tuple(_cases(body, str(path))))


def frozen_file(name: str) -> Traversable:
    """Return the package's file of a frozen suite, or another file next to it."""
    return files("shioenv_eval.frozen").joinpath(f"{name}.jsonl.gz" if name in FROZEN else name)


def is_frozen(path: str | Path) -> bool:
    """Whether a path is the name of a frozen suite, and not of a file."""
    return str(path) in FROZEN and not Path(path).exists()


def suite_inputs(inputs: str | Path) -> list[Question]:
    """Read the inputs of a file (`read_questions`), or of a frozen suite by name."""
    if is_frozen(inputs):
        return [case.question for case in read_suite(inputs).cases]
    return read_questions(inputs)


def _content(path: str | Path) -> bytes:
    """Return the uncompressed content of a suite's file. Errors: OSError."""
    own = is_frozen(path)
    content = frozen_file(str(path)).read_bytes() if own else read_regular(path, LARGEST_LIST)
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            return file.read(LARGEST_LIST)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return b""  # no suite


def _cases(body: bytes, source: str) -> Iterator[SuiteCase]:
    for number, line in enumerate(body.splitlines(), 2):
        try:
            document = parse_json(line.decode("utf-8", "surrogatepass"))
        except ValueError as error:
            raise SuiteError(f"{source}:{number}: invalid case: {error}") from None
        yield SuiteCase.from_json(document, number, source)


def moved_in(runs: Sequence[Behavior], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return a context's values at the source paths of the runs' move operations, by path."""
    found: dict[str, Any] = {}
    for run in runs:
        for _, source, _ in moves(run.patch):
            value: Any = before
            for key in keys(source):
                value = value.get(key) if isinstance(value, Mapping) else None
            found[source] = value
    return found


_HINT = "record a suite: shioenv suite record INPUTS --out SUITE"
