"""A predictor that answers from a file, so that any source of JSON Lines can be evaluated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shioenv.domain.answer_json import answer_from, behavior_json
from shioenv.domain.behavior import Behavior
from shioenv.domain.predictor import PatchLevel, Setting
from shioenv.domain.runner import Answer, State
from shioenv.errors import Abstained, PredictorError
from shioenv.files.documents import parse_json
from shioenv.files.regular import LARGEST_LIST, lines_of, read_regular
from shioenv_eval.metrics import PredictorAnswer, Status
from shioenv_eval.results import JudgedPredictor
from shioenv_eval.suite import Suite

Key = tuple[str, str | None, tuple[str, ...]]


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
