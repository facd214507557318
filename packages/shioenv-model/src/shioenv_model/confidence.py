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
from shioenv.grammar.library import names_of_grammars
from shioenv_model.rules.registry import Step
from shioenv_model.rules.words import EQUIVALENT

COMPOSED, SCRIPT, LONG = "composition", "several lines", "many lines"
RARE = "neighbour of a command without a grammar"
"""Properties of inputs. They have factors, as answerers have.

Commands without a grammar have few records, so the confidence from their neighbours is too high.
"""

NEIGHBOUR = "memory"
"""The answerer that rewrites the nearest record."""

MANY = 8
"""Number of lines from which an input counts as long (our choice)."""

LEAST_KNOWN = "an answerer without a factor"


@lru_cache(maxsize=1)
def _common() -> Set[str]:
    """Return the names of commands that have a grammar, or whose subcommands have one."""
    names = {part for name in names_of_grammars() for part in (name, name.partition("-")[0])}
    return names | EQUIVALENT.keys()


def _is_rare(step: Step) -> bool:
    words = (word for word in step.input.split() if "=" not in word)
    return step.asked[-1:] == (NEIGHBOUR,) and next(words, "") not in _common()


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
    named[RARE] = any(map(_is_rare, steps))
    return found | {name for name, holds in named.items() if holds}


def calibrated(text: str, answer: Answer, steps: Sequence[Step]) -> float:
    """Return the confidence of an answer, times the factor of each of its properties."""
    table, confidence = factors(), answer.confidence
    for name in sorted(properties(text, answer, steps)):
        confidence *= table.get(name, table[LEAST_KNOWN])
    return confidence
