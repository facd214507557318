"""Evaluation of predictors on a suite: answers are collected, kept, and scored."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from shioenv.domain.answer_json import behavior_json, behavior_of
from shioenv.domain.predictor import REPLY_SECONDS, PatchLevel, find_predictor
from shioenv.errors import (
    AnswerError,
    HostError,
    SuiteError,
    UsageError,
)
from shioenv.execution.job import Tell, processes_here, silent
from shioenv.files.durable import atomic_write, locked, storage_errors
from shioenv.files.journal import Journal
from shioenv.text import short_repr
from shioenv_eval.metrics import PredictorAnswer, Status
from shioenv_eval.predictor_pool import Bounds, PredictorPool, unable
from shioenv_eval.results import (
    NO_ANSWERS,
    JudgedPredictor,
    TrainedOn,
    evaluation_results,
    judge_predictor,
    trained_on,
)
from shioenv_eval.suite import Suite, read_suite, write_suite

RESULTS = "results.json"
SUITE = "suite.jsonl"
PLAN = "evaluation.json"

Report = Callable[[str, int, int, int], None]
"""Callback with a predictor's name, its answers so far, the total, and answers kept earlier."""


@dataclass(frozen=True)
class Evaluation:
    """A suite, the predictors' answers to it, and their scores."""

    suite: Suite
    predictors: tuple[JudgedPredictor, ...]
    unable: Mapping[str, str] = field(default_factory=dict)
    """Reasons why predictors were not evaluated, by name: unable to run, or no valid answer."""

    def __repr__(self) -> str:
        names = [one.name for one in self.predictors]
        return short_repr(self, {"suite": self.suite.head.name, "predictors": names})

    @cached_property
    def document(self) -> dict[str, Any]:
        """The results (`evaluation_results`) with `unable`, as a JSON object."""
        return evaluation_results(self.suite, self.predictors) | {"unable": dict(self.unable)}


def evaluate(
    suite: str | Path | Suite,
    predictors: Sequence[str],
    out: str | Path | None = None,
    *,
    workers: int | None = None,
    timeout: float = REPLY_SECONDS,
    start_timeout: float | None = None,
    report: Report = lambda name, done, total, kept: None,
    tell: Tell = silent,
) -> Evaluation:
    """Evaluate predictors, given by name, on a suite.

    Each predictor is asked in `workers` processes (None: one per processor) about every input in
    its state. An answer that takes longer than `timeout` seconds counts as missing. A predictor
    that crashes is restarted. `start_timeout` limits the time to become ready, see `Bounds.start`.
    A predictor that cannot run here, or gives no valid answer, is not evaluated; `unable` holds the
    reason.

    `out` is a directory where answers are saved as they arrive. The same call resumes an
    interrupted one. Answers of another version of a predictor are discarded. With None, nothing is
    saved.

    `tell` is called with messages about long waits. Errors: SuiteError; those of `find_predictor`,
    before any predictor is asked. UsageError if `out` holds an evaluation of another suite.
    DatasetStorageError and DatasetBusyError for the directory `out`.
    """
    names = list(dict.fromkeys(predictors))
    for name in names:
        find_predictor(name)
    suite = suite if isinstance(suite, Suite) else read_suite(suite)
    bounds = Bounds(timeout, start_timeout)
    count = processes_here(workers)
    found: list[JudgedPredictor] = []
    lacking: dict[str, str] = {}
    with _directory(out, suite) as directory:
        for name in names:
            tell(f"starting {name}, which may take {bounds.ready:g} s (--start-timeout)")
            try:
                asked = partial(PredictorPool, name, suite.head.system, suite.head.start)
                with asked(count, bounds) as asking:
                    tell(f"{name} started in {asking.seconds:.1f} s")
                    found.append(_judged(name, suite, directory, asking, report, tell))
            except (HostError, AnswerError) as error:
                lacking[name] = unable(error)
        _note(directory, suite, found, lacking)
        evaluation = Evaluation(suite, tuple(found), lacking)
        content = json.dumps(evaluation.document, ensure_ascii=False, indent=1)
        with storage_errors(directory):
            atomic_write(directory / RESULTS, f"{content}\n".encode())
    return evaluation


def answers_beneath(directory: Path, suite: Suite) -> Path:
    """Return the directory of a model's evaluation on a suite, inside the model's directory."""
    return directory / f"answers-{suite.head.digest[:12]}"


def read_evaluation(directory: str | Path, of: Suite | None = None) -> Evaluation:
    """Read the evaluation in a directory, and score it again without asking any predictor.

    Errors: SuiteError if the directory holds no evaluation, or lacks an answer of a predictor.
    UsageError if `of` is given, and the evaluation is of another suite or recording.
    """
    directory = Path(directory)
    try:
        plan = json.loads((directory / PLAN).read_bytes())
    except (OSError, ValueError):
        raise SuiteError(
            f"{directory} contains no evaluation", hint="create one: shioenv evaluate ... --out DIR"
        ) from None
    suite = read_suite(directory / SUITE)
    if of is not None:
        _agree(directory, suite, of)
    found = []
    for name, facts in plan["predictors"].items():
        with _journal(directory, name) as journal:
            said = [journal.values.get(place) for place in range(len(suite.cases))]
        if None in said:
            raise SuiteError(
                f"{directory} lacks answers of {name}",
                hint=f"run `shioenv evaluate` again with --predictor {name} and --out {directory}",
            )
        kept = [one for one in said if one is not None]
        level = PatchLevel(facts["patch_level"])
        known = facts["training"]
        training = None if known is None else TrainedOn.from_json(known)
        found.append(judge_predictor(suite, kept, name, facts["version"], level, training))
    return Evaluation(suite, tuple(found), plan["unable"])


def _agree(directory: Path, there: Suite, suite: Suite) -> None:
    """Check that two suites are the same recording. Errors: UsageError."""
    if there.head.sha256 != suite.head.sha256 or not suite.head.sha256:
        raise UsageError(
            f"{directory} contains an evaluation of another suite or recording",
            hint="choose another directory",
        )


@contextmanager
def _directory(out: str | Path | None, suite: Suite) -> Iterator[Path]:
    """Open the directory that keeps answers: `out`, or a temporary one if `out` is None."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="shioenv-evaluation-") as name:
            yield Path(name)
        return
    directory = Path(out)
    with storage_errors(directory):
        (directory / "answers").mkdir(parents=True, exist_ok=True)
        with locked(directory):
            if (directory / SUITE).exists():
                _agree(directory, read_suite(directory / SUITE), suite)
            else:
                write_suite(suite, directory / SUITE)
            yield directory


def _judged(
    name: str,
    suite: Suite,
    directory: Path,
    asking: PredictorPool,
    report: Report,
    tell: Tell,
) -> JudgedPredictor:
    """Score a predictor's answers, after asking for those that are not kept yet.

    Errors: HostError; AnswerError if the predictor gave no valid answer; then nothing is kept.
    """
    (directory / "answers").mkdir(exist_ok=True)
    total = len(suite.cases)
    tasks = [(case.question.input, case.state(suite.head.start)) for case in suite.cases]
    about = asking.ready
    version = json.dumps([about.version, about.level])
    with _journal(directory, name, version) as journal:
        said = journal.values
        kept = len(said)
        report(name, kept, total, kept)
        missing = [(place, task) for place, task in enumerate(tasks) if place not in said]
        for place, one in asking.said(missing):
            journal.append(place, one, _encoded(place, one))
            report(name, len(said), total, kept)
        answers = [said[place] for place in range(total)]
    if answers and all(one.status in NO_ANSWERS for one in answers):
        _answers_file(directory, name).unlink(missing_ok=True)
        raise AnswerError(
            f"none of its {total} answers is valid; the first, to {tasks[0][0]!r:.80}: "
            f"{answers[0].why}",
            hint="docs/how-to/judge.md explains the format of answers",
        )
    training = None
    if about.training is not None:
        tell(f"comparing the suite with the training data of {name}")
        training = trained_on(suite, about.training)
    return judge_predictor(suite, answers, name, about.version, about.level, training)


@contextmanager
def _journal(directory: Path, name: str, version: str = "") -> Iterator[Journal[PredictorAnswer]]:
    """Open the journal of a predictor's answers; answers of another version are removed.

    If `version` is empty, all answers are kept.
    """
    path = _answers_file(directory, name)
    mark = path.with_suffix(".version")
    with storage_errors(path):
        if version and (not mark.exists() or mark.read_text(encoding="utf-8") != version):
            path.unlink(missing_ok=True)
            atomic_write(mark, version.encode())
        journal: Journal[PredictorAnswer] = Journal(path, _decoded)
        try:
            yield journal
        finally:
            journal.close()


def _answers_file(directory: Path, name: str) -> Path:
    slug = re.sub(r"[^\w.-]+", "_", name)[:60]
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return directory / "answers" / f"{slug}-{digest}.ndjson"


def format_answer(said: PredictorAnswer) -> dict[str, Any]:
    """Return a predictor's answer to an input as JSON."""
    return {
        "status": said.status.value,
        "confidence": said.confidence,
        "milliseconds": said.milliseconds,
        "why": said.why,
        "tokens": said.tokens,
        "cost": said.cost,
        "answer": None if said.behavior is None else behavior_json(said.behavior),
    }


def parse_answer(document: Mapping[str, Any]) -> PredictorAnswer:
    """Parse the output of `format_answer`. Errors: KeyError, ValueError, TypeError, AnswerError."""
    answer = document["answer"]
    return PredictorAnswer(
        Status(document["status"]),
        None if answer is None else behavior_of(answer),
        document["confidence"],
        document["milliseconds"],
        document["why"],
        tuple(document["tokens"]),
        document.get("cost", 0.0),  # answers kept by earlier releases have no cost
    )


def _encoded(place: int, said: PredictorAnswer) -> bytes:
    return json.dumps({"number": place, **format_answer(said)}).encode()


def _decoded(line: bytes) -> tuple[int, PredictorAnswer] | None:
    document = json.loads(line)
    return document["number"], parse_answer(document)


def _note(
    directory: Path, suite: Suite, found: Sequence[JudgedPredictor], unable: Mapping[str, str]
) -> None:
    """Record the directory's predictors, merged with those of earlier calls.

    A predictor that was unable to run is removed from the list if the directory lacks its answers.
    """
    there: dict[str, Any] = {"predictors": {}, "unable": {}}
    path = directory / PLAN
    if path.exists():
        there = json.loads(path.read_bytes())
    for one in found:
        there["predictors"][one.name] = {
            "version": one.version,
            "patch_level": one.level.value,
            "training": None if one.training is None else one.training.to_json(),
        }
        there["unable"].pop(one.name, None)
    for name in unable:
        if not _answers_file(directory, name).exists():
            there["predictors"].pop(name, None)
    there["unable"] |= dict(unable)
    document = {"suite": suite.head.digest, **there}
    with storage_errors(path):
        atomic_write(path, f"{json.dumps(document, indent=1)}\n".encode())
