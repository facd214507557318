"""Which inputs of a suite stand in the data that a predictor was trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shioenv.bash.normal import normal
from shioenv.dataset.leakage import inputs_of
from shioenv.domain.inputs import without_start
from shioenv.evaluation.suite import Suite
from shioenv.model.memory.index import Index, holds_index
from shioenv.training.examples import SEEN, Seen


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


def trained_on(suite: Suite, data: str | Path) -> TrainedOn:
    """Which cases of a suite stand in a dataset, a file of inputs, or the directory of a model.

    Of a model each input counts once. Errors: those of `leakage`; ModelError.
    """
    asked = [without_start(case.question.input)[1] for case in suite.cases]
    if (Path(data) / SEEN).exists():
        seen = Seen(Path(data))
        return _training(data, len(seen), asked, seen.has_text, seen.has_form)
    texts: set[str] = set()
    forms: set[str | None] = set()
    count = 0
    for text in Index(Path(data)).texts() if holds_index(data) else inputs_of(data):
        texts.add(" ".join(text.split()))
        forms.add(normal(text))
        count += 1
    forms.discard(None)
    return _training(
        data, count, asked, lambda text: " ".join(text.split()) in texts, forms.__contains__
    )


def _training(
    data: str | Path,
    inputs: int,
    asked: Sequence[str],
    has_text: Callable[[str], bool],
    has_form: Callable[[str | None], bool],
) -> TrainedOn:
    known = frozenset(place for place, text in enumerate(asked) if has_text(text))
    formed = frozenset(place for place, text in enumerate(asked) if has_form(normal(text)))
    return TrainedOn(str(data), inputs, known, known | formed)
