"""Every grammar covers the options of the built system's own help texts, no others, and has
examples that do there what they state."""

import re

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv.grammar.library import load_grammar, names_of_grammars
from shioenv_eval.grammars.coverage import help_coverage
from shioenv_eval.grammars.grammar_check import run_examples


@pytest.mark.parametrize("name", names_of_grammars())
def test_no_option_is_missing_and_none_unknown(observer: SandboxRunner, name: str) -> None:
    grammar = load_grammar(name, host_clock=observer.system.host_clock)
    found = help_coverage(grammar, lambda text: observer.run(text).text)
    assert found.documented or not re.search(r"^ +-", observer.run(f"help {name}").text, re.M)
    assert [gap.option for gap in found.missing] == []
    assert [gap.option for gap in found.unknown] == []


@pytest.mark.parametrize("name", names_of_grammars())
def test_examples_do_what_they_say(observer: SandboxRunner, name: str) -> None:
    def run(text: str) -> tuple[int, str]:
        behavior = observer.run(text)
        return behavior.exit_code, behavior.text

    grammar = load_grammar(name, host_clock=observer.system.host_clock)
    failed = {one.text: one.failures for one in run_examples([grammar], run) if one.failures}
    assert failed == {}
