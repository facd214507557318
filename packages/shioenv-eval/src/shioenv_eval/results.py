"""Results of an evaluation: every metric for single, multi and all inputs, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from shioenv.bash.normal import InputForms, normal
from shioenv.domain.inputs import without_start
from shioenv.domain.predictor import PatchLevel, Training
from shioenv_eval.leakage import inputs_of
from shioenv_eval.metrics import METRICS, Marks, PredictorAnswer, Status, mark
from shioenv_eval.places import utilities
from shioenv_eval.report.means import Resampled
from shioenv_eval.suite import Suite, SuiteCase

GROUPS = ("single", "multi", "all")
SHOWN = {
    "em": "EM",
    "em_masked": "masked",
    "em_exit": "+exit",
    "em_files": "files",
    "em_output": "output",
    "em_patch": "patch",
    "exit_code": "exit",
    "o_es": "O-ES",
    "djs": "ΔJS",
}
"""Metrics of every table, with short headings."""
COMPARED = ("em", "em_masked", "em_exit", "em_files", "em_output", "o_es", "djs", "djs_files")
"""Metrics for which differences between predictors are reported."""
OWN_LEVEL = frozenset({"em", "em_masked", "em_exit", "djs"})
"""The metrics of `COMPARED` whose meaning depends on the patch level."""
MACRO = ("em", "em_masked", "o_es")
"""Metrics also averaged per utility."""
DETERMINISTIC = ("em", "o_es", "djs")
"""Metrics also reported for the inputs without anything volatile."""
NO_ANSWERS = (Status.INVALID, Status.TIMED_OUT, Status.CRASHED)
"""Statuses of unintended missing answers; abstaining is intended."""
FAILURES = (Status.ABSTAINED, *NO_ANSWERS)


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """The cases of a suite, by index from 0, that occur in a predictor's training data."""

    data: str
    """The predictor's name for its training data."""
    inputs: int
    """Number of inputs in the training data."""
    text: frozenset[int]
    """Indices of the cases whose text is in the training data, ignoring white space."""
    form: frozenset[int]
    """Indices of the cases whose normal form is in the training data, including those of `text`."""

    def to_json(self) -> dict[str, Any]:
        """Return the findings as a JSON object, for `from_json`."""
        places = {"text": sorted(self.text), "form": sorted(self.form)}
        return {"data": self.data, "inputs": self.inputs, **places}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TrainedOn:
        """Parse the output of `to_json`."""
        text, form = frozenset(document["text"]), frozenset(document["form"])
        return cls(document["data"], document["inputs"], text, form)


def trained_on(suite: Suite, training: Training | str | Path) -> TrainedOn:
    """Find the cases of a suite that occur in a predictor's training data.

    `training` is a `Predictor.training`. Errors: those of `leakage`, or of the `Training`.
    """
    if not isinstance(training, Training):
        training = InputForms(str(training), partial(inputs_of, training))
    asked = [without_start(case.question.input)[1] for case in suite.cases]
    known = frozenset(place for place, text in enumerate(asked) if training.has_text(text))
    formed = frozenset(place for place, text in enumerate(asked) if training.has_form(normal(text)))
    return TrainedOn(training.data, len(training), known, known | formed)


@dataclass(frozen=True)
class JudgedPredictor:
    """A predictor's answers to a suite, with their scores."""

    name: str
    """The predictor's name exactly as given, such as `memory:./dataset`."""
    said: tuple[PredictorAnswer, ...]
    """The answers in the order of the suite's cases."""
    marks: tuple[Marks, ...]
    version: str = ""
    level: PatchLevel = PatchLevel.FULL
    training: TrainedOn | None = None
    """The cases in the training data; None if the predictor does not name its training data."""


def judge_predictor(
    suite: Suite,
    said: Sequence[PredictorAnswer],
    name: str,
    version: str = "",
    level: PatchLevel = PatchLevel.FULL,
    training: TrainedOn | None = None,
) -> JudgedPredictor:
    """Score a predictor's answers to a suite's cases, given in the same order."""
    marks = tuple(mark(case, one, level) for case, one in zip(suite.cases, said, strict=True))
    return JudgedPredictor(name, tuple(said), marks, version, level, training)


def evaluation_results(suite: Suite, predictors: Sequence[JudgedPredictor]) -> dict[str, Any]:
    """Return all results of an evaluation as a JSON object.

    For each predictor's name, `predictors` has its `version`, `patch_level` and the groups
    `single`, `multi` and `all`. A group has `n` and its metrics as `[value, low, high]` (95%, by
    1,000 resamples of inputs). Predictors that count tokens have `tokens` and `cost`; those that
    name their training data have `training`.

    For each pair of predictors and each group, `differences` has the first one's metrics minus
    those of the second, on the same resamples. Metrics of `OWN_LEVEL` are compared only if both
    predictors have the same level.
    """
    places = {
        name: [
            place for place, case in enumerate(suite.cases) if name in ("all", case.question.steps)
        ]
        for name in GROUPS
    }
    drawn = {name: Resampled(len(chosen)) for name, chosen in places.items()}
    document: dict[str, Any] = {
        "suite": {
            "name": suite.head.name,
            "digest": suite.head.digest,
            "system": suite.head.system,
            "system_digest": suite.head.system_digest,
            "inputs": len(suite.cases),
            "volatile": suite.volatile,
        },
        "predictors": {},
        "differences": [],
    }
    means = {}
    for one in predictors:
        for name, chosen in places.items():
            for metric in METRICS:
                means[one.name, name, metric] = drawn[name].drawn(_values(one, chosen, metric))
    for one in predictors:
        groups = {}
        for name, chosen in places.items():
            own = {metric: means[one.name, name, metric].estimate for metric in METRICS}
            groups[name] = {"n": len(chosen), **own, **_group(suite, one, chosen, drawn[name])}
        document["predictors"][one.name] = {
            "version": one.version,
            "patch_level": one.level.value,
            **groups,
            **_tokens(one),
            **_trained(one, len(suite.cases)),
        }
    for first, second in combinations(predictors, 2):
        same = first.level is second.level
        compared = [metric for metric in COMPARED if same or metric not in OWN_LEVEL]
        document["differences"].append(
            {"first": first.name, "second": second.name}
            | {
                name: {
                    metric: means[first.name, name, metric].less(means[second.name, name, metric])
                    for metric in compared
                }
                for name in GROUPS
            }
        )
    return document


def _tokens(one: JudgedPredictor) -> dict[str, Any]:
    """Return a model's prompt and reply tokens, and their cost in dollars (None: no known price).

    Empty for predictors that do not count tokens.
    """
    asked, answered = (sum(said.tokens[side] for said in one.said) for side in (0, 1))
    if not (asked or answered):
        return {}
    cost = round(sum(said.cost for said in one.said), 6) or None
    return {"tokens": {"prompt": asked, "completion": answered}, "cost": cost}


def _trained(one: JudgedPredictor, cases: int) -> dict[str, Any]:
    """Return the shares of the suite in a predictor's training data; empty if unknown."""
    if one.training is None:
        return {}
    shares = {name: len(getattr(one.training, name)) / cases for name in ("text", "form")}
    rounded = {name: round(share, 4) for name, share in shares.items()}
    return {"training": {"data": one.training.data, "inputs": one.training.inputs, **rounded}}


def _group(
    suite: Suite, one: JudgedPredictor, chosen: Sequence[int], drawn: Resampled
) -> dict[str, Any]:
    """Return the results of a group of cases in addition to the plain metrics."""
    cases = [suite.cases[place] for place in chosen]
    said = [one.said[place] for place in chosen]
    steady = [not case.mask.volatile for case in cases]
    found: dict[str, Any] = {}
    for name in DETERMINISTIC:
        values = _values(one, chosen, name)
        kept = [value if sure else None for value, sure in zip(values, steady, strict=True)]
        found[f"{name}_deterministic"] = drawn.drawn(kept).estimate
    if one.training is not None:
        values = _values(one, chosen, "em")
        for name, seen in (("text", one.training.text), ("form", one.training.form)):
            pairs = zip(chosen, values, strict=True)
            kept = [None if place in seen else value for place, value in pairs]
            found[f"em_new_{name}"] = drawn.drawn(kept).estimate
    groups = by_utility(cases)
    found |= {f"{name}_macro": drawn.macro(_values(one, chosen, name), groups) for name in MACRO}
    for status in FAILURES:
        found[status.value] = drawn.drawn([float(each.status is status) for each in said]).estimate
    times = [each.milliseconds for each in said]
    found |= {f"ms_p{part}": drawn.percentile(times, part) for part in (50, 95)}
    return found


def by_utility(cases: Iterable[SuiteCase]) -> dict[str, list[int]]:
    """Return the indices of the cases that call each utility, sorted by the utility's name.

    A case may call several utilities.
    """
    found: dict[str, list[int]] = {}
    for place, case in enumerate(cases):
        for utility in utilities(case.question.input):
            found.setdefault(utility, []).append(place)
    return dict(sorted(found.items()))


def _values(one: JudgedPredictor, chosen: Sequence[int], name: str) -> list[float | None]:
    return [getattr(one.marks[place], name) for place in chosen]
