"""Which inputs of a suite stand in the data that a predictor was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from shioenv.bash.normal import InputForms, normal
from shioenv.domain.inputs import without_start
from shioenv.domain.predictor import Training
from shioenv_eval.leakage import inputs_of
from shioenv_eval.suite import Suite


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """Which cases of a suite, by their places from 0, a predictor was trained on."""

    data: str
    """The training data, as the predictor names it."""
    inputs: int
    """How many inputs the training data hold."""
    text: frozenset[int]
    """Places of the cases whose text was trained on; white space does not count."""
    form: frozenset[int]
    """Places of the cases whose normal form was trained on, and all places of `text`."""

    def to_json(self) -> dict[str, Any]:
        """The findings, as they are kept; `from_json` reads them."""
        places = {"text": sorted(self.text), "form": sorted(self.form)}
        return {"data": self.data, "inputs": self.inputs, **places}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TrainedOn:
        """What `to_json` wrote."""
        text, form = frozenset(document["text"]), frozenset(document["form"])
        return cls(document["data"], document["inputs"], text, form)


def trained_on(suite: Suite, training: Training | str | Path) -> TrainedOn:
    """Which cases of a suite a predictor was trained on.

    `training` is a `Predictor.training`. Errors: those of `leakage`, or of the `Training`.
    """
    if not isinstance(training, Training):
        training = InputForms(str(training), partial(inputs_of, training))
    asked = [without_start(case.question.input)[1] for case in suite.cases]
    known = frozenset(place for place, text in enumerate(asked) if training.has_text(text))
    formed = frozenset(place for place, text in enumerate(asked) if training.has_form(normal(text)))
    return TrainedOn(training.data, len(training), known, known | formed)
