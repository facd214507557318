"""What of a suite stands in the data that a predictor was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shioenv.dataset.leakage import inputs_of
from shioenv.domain.inputs import without_start
from shioenv.evaluation.suite import Suite
from shioenv.grammar.normal import normal
from shioenv.modeling.index import Index, holds_index
from shioenv.modeling.seen import SEEN, Seen


@dataclass(frozen=True, slots=True)
class Training:
    """The places of a suite's cases whose input, or whose normal form, was trained on."""

    data: str
    inputs: int
    """Of the training data."""
    text: frozenset[int]
    form: frozenset[int]
    """Those of `text` among them."""

    def to_json(self) -> dict[str, Any]:
        """The findings, as they are kept; `from_json` reads them."""
        places = {"text": sorted(self.text), "form": sorted(self.form)}
        return {"data": self.data, "inputs": self.inputs, **places}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Training:
        """What `to_json` wrote."""
        text, form = frozenset(document["text"]), frozenset(document["form"])
        return cls(document["data"], document["inputs"], text, form)


def trained_on(suite: Suite, data: str | Path) -> Training:
    """What of a suite stands in a dataset, a file of inputs, or the directory of a model, which
    has each input once. Errors: those of `leakage`; ModelError.
    """
    asked = [without_start(case.question.input)[1] for case in suite.cases]
    if (Path(data) / SEEN).exists():
        seen = Seen(Path(data))
        known = frozenset(place for place, text in enumerate(asked) if seen.has_text(text))
        formed = frozenset(place for place, text in enumerate(asked) if seen.has_form(normal(text)))
        return Training(str(data), len(seen), known, known | formed)
    texts: set[str] = set()
    forms: set[str | None] = set()
    count = 0
    for text in Index(Path(data)).texts() if holds_index(data) else inputs_of(data):
        texts.add(" ".join(text.split()))
        forms.add(normal(text))
        count += 1
    forms.discard(None)
    known = frozenset(place for place, text in enumerate(asked) if " ".join(text.split()) in texts)
    formed = frozenset(place for place, text in enumerate(asked) if normal(text) in forms)
    return Training(str(data), count, known, known | formed)
