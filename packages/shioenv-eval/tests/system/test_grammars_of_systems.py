"""Grammars of the development machine's own programs, against the programs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.inputs import Input
from shioenv.domain.record import Record
from shioenv.grammar.library import OF_SYSTEMS, grammars_of_system
from shioenv.grammar.symbols import Grammar
from shioenv.sandbox.base import Limits
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import grammars_for, sample
from shioenv_eval.grammars.drawn_options import OptionCoverage
from support.needs import needs

SYSTEM = "debian-12-dev"
OWN = grammars_of_system(SYSTEM)
assert OWN is not None

pytestmark = [needs(SYSTEM), pytest.mark.nightly]

DRAWN = 3000
"""Inputs that are drawn of a grammar; those with an option that no earlier run had are run."""

HELP = frozenset({"-help", "--help-all", "--help-env", "--help-xoptions"})
"""Options that print usage lines because they are the help."""

TRIES = 8
"""Runs in which an option may meet a usage error, such as that of another option."""


@pytest.fixture(scope="module")
def machine() -> Iterator[SandboxRunner]:
    limits = Limits(wall_seconds=20, cpu_seconds=20, without_shell_state=True)
    with open_sandbox(SYSTEM, limits=limits) as opened:
        yield opened


def record(drawn: Input, machine: SandboxRunner) -> Record:
    behavior = machine.run(drawn.text)
    return Record(
        session_id=0, input=drawn.text, input_args=drawn.input_args, exit_code=behavior.exit_code,
        output=behavior.text, context_patch="[]", irreducibility=None,
    )  # fmt: skip


def options_run(grammar: Grammar, machine: SandboxRunner) -> OptionCoverage:
    """Run drawn inputs until each option ran without a usage error."""
    drawing = Drawing(
        seed=1, commands=(grammar.name,), own_grammars=str(OF_SYSTEMS / SYSTEM),
        composite_share=0, policy="uniform",
    )  # fmt: skip
    tried, ran = (OptionCoverage({grammar.name: grammar}) for _ in range(2))
    for one in sample(drawing, system=machine.system, grammars=(grammar,), count=DRAWN):
        before = dict(tried.seen)
        tried.add_drawn(one.input)
        new = [key for key, count in tried.seen.items() if count != before.get(key, 0)]
        if any(key not in ran.seen and tried.seen[key] <= TRIES for key in new):
            ran.add_record(record(one.input, machine))
        if not ran.missing:
            break
    return ran


@pytest.mark.parametrize("name", OWN.names)
def test_every_option_runs_without_a_usage_error(name: str, machine: SandboxRunner) -> None:
    drawing = Drawing(commands=(name,), own_grammars=SYSTEM)
    (grammar,) = grammars_for(machine.system, drawing)
    missing = options_run(grammar, machine).missing.get(name, [])
    assert {*missing} <= HELP
