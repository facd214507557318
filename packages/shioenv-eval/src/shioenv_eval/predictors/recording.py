"""Answers as JSON Lines, and a predictor that reads them from a file of any source."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shioenv.domain.answer_json import behavior_json, behavior_of
from shioenv.domain.behavior import Behavior
from shioenv.domain.predictor import PatchLevel, Setting
from shioenv.domain.runner import Answer, State
from shioenv.errors import Abstained, AnswerError, PredictorError, nearest
from shioenv.files.documents import parse_json
from shioenv.files.regular import LARGEST_LIST, lines_of, read_regular
from shioenv_eval.metrics import PredictorAnswer, Status
from shioenv_eval.results import JudgedPredictor
from shioenv_eval.suite import Suite

Key = tuple[str, str | None, tuple[str, ...]]

SAID = ("abstained", "confidence", "context_patch", "exit_code", "output", "output_b64")
"""Keys that affect the score of an answer. A key that closely resembles one is an error."""


class RecordedPredictor:
    """Answers an input from the file, by its text, start directory and history.

    A line without `cwd` matches every start directory; a line with the same `cwd` takes precedence.
    """

    def __init__(self, answers: dict[Key, str], facts: Mapping[str, str]) -> None:
        self._answers = answers
        self.version, self.patch_level = facts["version"], facts["patch_level"]
        self.training = facts["training"]

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        """Return the file's answer for this input, start directory and history.

        Errors: Abstained if there is no such line, or the line abstains; AnswerError if the line
        holds no answer.
        """
        cwd, history = (state.cwd, state.history) if state else (None, ())
        for where in (cwd, None):
            line = self._answers.get((shell_input, where, history))
            if line is not None:
                return answer_from(json.loads(line))
        raise Abstained(f"the recording has no answer to {shell_input!r:.80}")

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return only the behavior of the answer."""
        return self.answer(shell_input, state).behavior


def _meant(name: str) -> str | None:
    """Return the key of `SAID` that a misspelt key stands for (`exitCode`, `outptu`), or None."""
    plain = {each.replace("_", ""): each for each in SAID}
    found = nearest(re.sub(r"[\W_]", "", name).lower(), plain, cutoff=0.8)
    return None if found is None else plain[found]


def answer_from(document: Any) -> Answer:
    """Parse an answer: a behavior, optionally with `confidence` (0 to 1) and `source`.

    An output is required. Unknown keys are ignored, but a key that resembles one of `SAID` is an
    error. Errors: Abstained if `abstained` is true; AnswerError.
    """
    if not isinstance(document, dict):
        raise AnswerError(f"expected a JSON object, got {document!r:.60}")
    if document.get("abstained"):
        raise Abstained(str(document.get("source") or "it abstained"))
    for name in document:
        if name not in SAID and (meant := _meant(name)) not in (None, *document):
            raise AnswerError(f"unknown key {name!r:.40}; did you mean {meant}?")
    if not {"output", "output_b64"} & set(document):
        given = ", ".join(map(repr, document)) or "none"
        raise AnswerError(f"the answer has no output; its keys: {given:.120}")
    confidence = document.get("confidence", 1.0)
    behavior = behavior_of(document)
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        raise AnswerError(f"confidence is {confidence!r:.40}, not a number", received=behavior)
    if not 0 <= confidence <= 1:
        raise AnswerError(f"confidence is {confidence}, not 0 to 1", received=behavior)
    return Answer(behavior, float(confidence), str(document.get("source") or ""))


def recording(setting: Setting) -> RecordedPredictor:
    """Load the predictor `recording:FILE`.

    Lines hold `input`, optionally `cwd` and `history`, and an answer. A line without `input`
    describes the whole file by `version`, `patch_level` and `training`. If two lines have the same
    input, start directory and history, the later one counts.

    Errors: PredictorError for a file that cannot be read, or a line that is not valid JSON.
    """
    path = Path(setting.text)
    try:
        content = read_regular(path, LARGEST_LIST)
    except OSError as error:
        raise PredictorError(
            f"{setting.text or 'recording: without a file'} cannot be read: {error.strerror}",
            hint="use recording:FILE, with one answer per line, as JSON",
        ) from None
    facts = {
        "version": hashlib.sha256(content).hexdigest()[:12],
        "patch_level": PatchLevel.FULL.value,
    }
    facts["training"] = ""
    answers: dict[Key, str] = {}
    for number, line in enumerate(lines_of(content.decode("utf-8", "replace")), 1):
        if not line.strip():
            continue
        try:
            document = parse_json(line, finite=True)
            if "input" not in document:
                facts |= {name: str(document[name]) for name in facts if name in document}
                continue
            key = document["input"], document.get("cwd"), tuple(document.get("history") or ())
        except (ValueError, TypeError, AttributeError) as error:
            raise PredictorError(f"{path}:{number}: {error}") from None
        answers[key] = line
    return RecordedPredictor(answers, facts)


def recorded_lines(suite: Suite, judged: JudgedPredictor) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file for `recording:FILE` that scores as these answers did."""
    yield {"predictor": judged.name, "version": judged.version, "patch_level": judged.level.value}
    for case, said in zip(suite.cases, judged.said, strict=True):
        asked = case.question
        where = {"cwd": asked.cwd or suite.head.start, "history": list(asked.history)}
        yield {"input": asked.input, **where, **_recorded(said)}


def _recorded(said: PredictorAnswer) -> dict[str, Any]:
    if said.status is Status.ABSTAINED:
        return {"abstained": True}
    if said.behavior is None:
        return {"why": said.why}  # an answer without an output is invalid
    found = behavior_json(said.behavior)
    return found if said.status is Status.ANSWERED else found | {"context_patch": "invalid"}
