"""Check that the findings of `shioenv conform` are minimal: with anything less, they are gone.

Findings are drawn, and each removable part of them is left out in turn: a line before the input, a
command, a redirection with its target, an argument, a file of the start directory. Both sides run
each of these. They must agree, or differ in another class than the finding. The parts are found
here, independently of the code that minimised the findings.

A violation is a finding that remains one with something less.
"""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from common import parser, report
from shioenv.domain.inputs import REDIRECTIONS, SEPARATORS, Input, Role
from shioenv.execution.job import processes_here
from shioenv_eval.conform.comparison import compare_with_machine, predictor_of
from shioenv_eval.conform.shrink import Files, Reduced, Sides
from shioenv_eval.conform.truth import CaseMachine, Choice
from shioenv_eval.predictor_pool import Bounds, PredictorPool


def inputs_with_less(shell_input: Input) -> Iterator[Input]:
    """Yield the inputs that have one argument, one redirection or one command less."""
    tokens = shell_input.tokens
    for gone in range(shell_input.n_arguments):
        yield shell_input.keep(place for place in range(shell_input.n_arguments) if place != gone)
    for place, token in enumerate(tokens):
        text = token.argument.text
        if token.role is Role.OPERATOR and text not in SEPARATORS:
            behind = place + (2 if text in REDIRECTIONS else 1)
            yield Input((*tokens[:place], *tokens[behind:]))
    ends = [place for place, token in enumerate(tokens)
            if token.role is Role.OPERATOR and token.argument.text in SEPARATORS]  # fmt: skip
    for place in ends:  # the parts before and after a separator
        before = max((end for end in ends if end < place), default=-1)
        behind = min((end for end in ends if end > place), default=len(tokens))
        yield Input((*tokens[: before + 1], *tokens[place + 1 :]))
        yield Input((*tokens[:place], *tokens[behind:]))


def with_less(finding: Reduced, files: Files) -> Iterator[Reduced]:
    """Yield the case with one part removed."""
    asked = finding.asked
    for gone in range(len(asked.history)):
        lines = (*asked.history[:gone], *asked.history[gone + 1 :])
        yield replace(finding, asked=replace(asked, history=lines))
    for shell_input in inputs_with_less(asked.input):
        if shell_input.tokens and shell_input.text != asked.input.text:
            yield replace(finding, asked=replace(asked, input=shell_input))
    for file in files.left(finding):
        name = posixpath.relpath(file.path, asked.cwd)
        beneath = {one for one in finding.gone if one.startswith(f"{name}/")}
        yield replace(finding, gone=tuple(sorted({*finding.gone, name} - beneath)))


def main() -> int:
    """Compare, draw findings, try them, and return the exit status."""
    options = parser(__doc__, count=2_000)
    options.add_argument("--against", default="bashkit", help="the other side (default: bashkit)")
    options.add_argument("--findings", type=int, default=50, help="how many (default: 50)")
    options.add_argument("--command", action="append", help="only this command (again: another)")
    chosen = options.parse_args()
    choice = Choice(tuple(chosen.command or ()), chosen.count, chosen.seed)
    with compare_with_machine(chosen.against, system=chosen.system, choice=choice) as done:
        pass
    recurring = [one for one in done.findings if one.recurs]
    drawn = Random(chosen.seed).sample(recurring, min(chosen.findings, len(recurring)))
    files = Files(done.system)
    tried = [(one, list(with_less(one.reduced, files))) for one in drawn]
    cwd = done.system.declaration.start_directory
    rows, larger = [], []
    with (
        CaseMachine(done.system) as machine,
        PredictorPool(
            predictor_of(chosen.against), done.system.name, cwd, processes_here(None), Bounds()
        ) as pool,
    ):
        sides = Sides(machine, pool, done.level)
        sides.compare(less.whole for _, several in tried for less in several)
        for finding, several in tried:
            pairs = [(less, sides.known[less.whole.key]) for less in several]
            still = [
                less for less, both in pairs
                if both is not None and both.classes and both.classes <= finding.compared.classes
            ]  # fmt: skip
            text = " ; ".join((*finding.reduced.asked.history, finding.reduced.asked.input.text))
            rows.append((text, len(several), len(still)))
            if still:
                less = still[0]
                larger.append(
                    {"finding": text, "less": str(less.asked), "gone": list(less.gone)[:20]}
                )
    facts = {
        "cases": len(done.truth),
        "findings": len(done.findings),
        "drawn": len(drawn),
        "tried": sum(len(several) for _, several in tried),
        "minimal": len(drawn) - len(larger),
    }
    heads = ("finding", "tried", "still differ")
    return report(facts, larger, as_json=chosen.json, tables=[("findings tried", heads, rows)])


if __name__ == "__main__":
    sys.exit(main())
