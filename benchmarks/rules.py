"""The contribution of each rule of single commands to the answers about a suite.

    python benchmarks/rules.py --suite FILE [--model MODEL]

The model is asked about every input of a suite. Then each rule that answered a command of an input
is left out alone, and the inputs of that rule are asked about again. Prints a Markdown row for each
rule: the inputs in which the rule answered, those of them that are right (EM), those that are no
longer right without the rule, and those that are right only without the rule.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from shioenv.domain.answer_json import behavior_json, behavior_of
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_eval.metrics import PredictorAnswer, Status
from shioenv_eval.results import judge_predictor
from shioenv_eval.suite import Suite, read_suite
from shioenv_model import single_commands
from shioenv_model.composition.call import Call
from shioenv_model.files import load_model
from shioenv_model.model import Model
from shioenv_model.rules.registry import AFTER_RECORDS, BEFORE_RECORDS, Respondent, Rule, Step


class Watched:
    """Rules that record which of them answered."""

    def __init__(self) -> None:
        self.answered: set[str] = set()

    def rules(self, rules: Mapping[str, Rule], left_out: Collection[str]) -> dict[str, Rule]:
        """Return the rules, without those that are left out."""
        return {name: self._of(name, rule) for name, rule in rules.items() if name not in left_out}

    def _of(self, name: str, rule: Rule) -> Rule:
        def answer(call: Call, state: State, respondent: Respondent) -> Step | None:
            step = rule(call, state, respondent)
            if step is not None:
                self.answered.add(name)
            return step

        return answer


def model_without(name: str | None, watched: Watched, left_out: Collection[str] = ()) -> Model:
    """Return a model without some rules."""
    vars(single_commands).update(
        BEFORE_RECORDS=watched.rules(BEFORE_RECORDS, left_out),
        AFTER_RECORDS=watched.rules(AFTER_RECORDS, left_out),
    )
    return load_model(name)


def answer_to(model: Model, suite: Suite, place: int) -> PredictorAnswer:
    """Return the model's answer to an input, as an evaluation keeps it."""
    case = suite.cases[place]
    try:
        behavior = model.run(case.question.input, case.state(suite.head.start))
    except Abstained:
        return PredictorAnswer(Status.ABSTAINED)
    return PredictorAnswer(behavior=behavior_of(behavior_json(behavior)))


def right(suite: Suite, said: Sequence[PredictorAnswer]) -> list[bool]:
    """Return which answers are right."""
    return [bool(mark.em) for mark in judge_predictor(suite, said, "model").marks]


def main() -> None:
    """Print the contribution of each rule to a suite."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--suite", required=True, type=Path, metavar="FILE")
    parser.add_argument("--model", metavar="MODEL")
    given = parser.parse_args()
    suite, watched = read_suite(given.suite), Watched()
    whole, said = model_without(given.model, watched), list[PredictorAnswer]()
    places: dict[str, list[int]] = {}
    for place in range(len(suite.cases)):
        watched.answered.clear()
        said.append(answer_to(whole, suite, place))
        for name in watched.answered:
            places.setdefault(name, []).append(place)
    before = right(suite, said)
    print(f"{sum(before)} of {len(before)} are right\n")
    print("| rule | answers in | right | lost without it | gained |\n|---|---:|---:|---:|---:|")
    for name in (each for each in (*BEFORE_RECORDS, *AFTER_RECORDS) if each in places):
        bare, changed = model_without(given.model, Watched(), {name}), list(said)
        for place in places[name]:
            changed[place] = answer_to(bare, suite, place)
        pairs = [*zip(before, right(suite, changed), strict=True)]
        lost, gained = pairs.count((True, False)), pairs.count((False, True))
        answers = sum(before[place] for place in places[name])
        print(f"| {name} | {len(places[name])} | {answers} | {lost} | {gained} |")


if __name__ == "__main__":
    main()
