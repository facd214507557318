"""Calibrated confidence: the expected accuracy of an answer, by the answerers that gave it.

Rules and composition do not estimate their own errors. So `confidence.json` has a factor below 1
for each answerer and for some properties of inputs. The factors are fitted to answers whose ground
truth is known (`python benchmarks/fit_confidence.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from importlib.resources import files

from shioenv.domain.runner import Answer
from shioenv.grammar.library import names_of_grammars
from shioenv_model.rules.registry import Step
from shioenv_model.rules.words import EQUIVALENT

COMPOSED = "composition"
RARE = "neighbour of a command without a grammar"
"""Properties of inputs. They have factors, as answerers have.

Commands without a grammar have few records, so the confidence from their neighbours is too high.
"""

NEIGHBOUR = "memory"
"""The answerer that rewrites the nearest record."""

SCRIPT, LINE = "several lines", "each line after the first"
MESSAGE = "each line of a script that the shell rejects"
BUILTIN = "each builtin of a script that changes how the shell works"
SUBTLE = "each feature of a script with subtle rules"
OF_SCRIPTS = (SCRIPT, LINE, MESSAGE, BUILTIN, SUBTLE)
"""Properties of inputs of several lines. All but the first are counted.

The interpreter was developed with scripts that other projects use as tests, and answers these
better than others. So the factors are fitted to others (`benchmarks/fit_confidence.py --fresh`).
There, answers are wrong more often, the longer the script, and with three kinds of features.
Messages and consequences of errors differ from builtin to builtin. Later lines depend on builtins
that change variables' attributes and scopes, options, traps and stacks. Line numbers, line
continuations, `=~` and non-ASCII characters have rules that few records show.
"""

LEAST_KNOWN = "an answerer without a factor"

_MESSAGE = re.compile(rb"^[\w/.-]+: (?:-c: )?line \d+:", re.MULTILINE)
_BUILTIN = re.compile(
    r"\b(?:declare|dirs|export|getopts|local|popd|pushd|readonly|shopt|trap|typeset|unset|wait)\b"
)
_SUBTLE = re.compile(r"\bLINENO\b|\\\n|=~|[^\x00-\x7f]")


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


def properties(text: str, answer: Answer, steps: Sequence[Step]) -> Mapping[str, int]:
    """Return the answerers of an answer's steps, and the properties of its input, with counts."""
    found = dict.fromkeys((step.asked[-1] for step in steps if step.asked), 1)
    found[COMPOSED] = int(len(steps) != 1 or answer.source == COMPOSED)
    found[RARE] = int(any(map(_is_rare, steps)))
    found[LINE] = text.strip().count("\n")
    if found[LINE]:
        found[SCRIPT] = 1
        found[MESSAGE] = len(set(_MESSAGE.findall(answer.behavior.output)))
        found[BUILTIN] = len(set(_BUILTIN.findall(text)))
        found[SUBTLE] = len(set(_SUBTLE.findall(text)))
    return {name: times for name, times in found.items() if times}


def calibrated(text: str, answer: Answer, steps: Sequence[Step]) -> float:
    """Return the confidence of an answer, times the factor of each of its properties."""
    table, confidence = factors(), answer.confidence
    for name, times in sorted(properties(text, answer, steps).items()):
        confidence *= table.get(name, table[LEAST_KNOWN]) ** times
    return confidence
