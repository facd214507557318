"""Calibrated confidence: the expected accuracy of an answer, by the answerers that gave it.

Rules and composition do not estimate their own errors. So `confidence.json` has a factor below 1
for each answerer and for some properties of inputs. The factors are fitted to answers whose ground
truth is known (`python benchmarks/fit_confidence.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from importlib.resources import files

from shioenv.domain.runner import Answer
from shioenv_model.rules.registry import Step

COMPOSED, SCRIPT, LONG = "composition", "several lines", "many lines"
"""Properties of inputs that have factors, like answerers."""

MANY = 8
"""Number of lines from which an input counts as long (our choice)."""

LEAST_KNOWN = "an answerer without a factor"


@lru_cache(maxsize=1)
def factors() -> Mapping[str, float]:
    """Return the factor of each answerer and of each property."""
    text = files("shioenv_model").joinpath("confidence.json").read_text(encoding="utf-8")
    table: dict[str, float] = json.loads(text)
    return table


def properties(text: str, answer: Answer, steps: Sequence[Step]) -> Set[str]:
    """Return the answerers of an answer's steps, and the properties of its input."""
    found = {step.asked[-1] for step in steps if step.asked}
    lines = text.strip().count("\n") + 1
    named = {COMPOSED: len(steps) != 1 or answer.source == COMPOSED, SCRIPT: lines > 1}
    named[LONG] = lines > MANY
    return found | {name for name, holds in named.items() if holds}


def calibrated(text: str, answer: Answer, steps: Sequence[Step]) -> float:
    """Return the confidence of an answer, times the factor of each of its properties."""
    table, confidence = factors(), answer.confidence
    for name in sorted(properties(text, answer, steps)):
        confidence *= table.get(name, table[LEAST_KNOWN])
    return confidence
