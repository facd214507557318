"""Measure a hybrid of a model where it is sure, and the machine elsewhere: executions, EM, time.

    python benchmarks/hybrid.py DIR [DIR ...]

Each DIR was written by `shioenv evaluate --predictor MODEL --predictor sandbox --out DIR`: of two
predictors the first is the model, the second the machine. At a confidence P the model is asked
first. Where it is less sure than P, the machine answers, which takes the time of both. Prints a
Markdown row for each P, of single and of multi inputs: the share of inputs without an execution, EM
with its 95% interval by resampling inputs, and milliseconds (mean and median).
"""

from __future__ import annotations

import argparse
import statistics

from shioenv_eval.evaluate import Evaluation, read_evaluation
from shioenv_eval.report.means import Resampled

CONFIDENCES = (0.0, 0.3, 0.5, 0.7, 0.9, 0.95, 0.99, 1.01)
"""The last is above every answer's confidence: everything is executed, after the model was
asked."""


def rows(name: str, evaluation: Evaluation) -> None:
    """Print the rows of one evaluation. Errors: ValueError where there are not two predictors."""
    model, machine = evaluation.predictors
    cases = [case.question.steps for case in evaluation.suite.cases]
    for steps in dict.fromkeys(cases):
        chosen = [place for place, one in enumerate(cases) if one == steps]
        resampled = Resampled(len(chosen))
        for least in CONFIDENCES:
            sure = [(model.said[place].confidence or 0.0) >= least for place in chosen]
            right, times = [], []
            for place, alone in zip(chosen, sure, strict=True):
                marks = model.marks if alone else machine.marks
                right.append(float(marks[place].em))
                both = 0.0 if alone else machine.said[place].milliseconds
                times.append(model.said[place].milliseconds + both)
            em, low, high = resampled.drawn(right).estimate
            print(
                f"| {name}, {steps}: {least:g} | {statistics.mean(sure):.2f} "
                f"| {em:.3f} [{low:.2f}, {high:.2f}] "
                f"| {statistics.mean(times):.0f} | {statistics.median(times):.0f} |"
            )


def main() -> None:
    """Print the rows of each evaluation."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directories", nargs="+", metavar="DIR")
    print("| inputs: at a confidence of | not executed | EM | ms, mean | median |")
    print("|---|---:|---:|---:|---:|")
    for directory in parser.parse_args().directories:
        rows(directory.rstrip("/").rpartition("/")[2], read_evaluation(directory))


if __name__ == "__main__":
    main()
