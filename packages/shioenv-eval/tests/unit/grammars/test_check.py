"""Faults that only the whole check of a grammar finds."""

from pathlib import Path

import pytest

from shioenv_eval.grammars.grammar_check import check_grammars

GRAMMAR = """# Says a word.
command   say
manual    say(1), words 1.0
package   words
volatile  no

start     say <option>* <number>

options
  -l, --loud

example say -l 3
"""


@pytest.mark.parametrize(
    ("example", "reason"),
    [
        ("say -x 3", "no alternative derives -x"),
        ("say 3 5", "no start line permits 5 (argument 2)"),
        ("say -l", "no start line combines these arguments, though each is derived alone"),
    ],
)
def test_what_is_not_derived_is_named(tmp_path: Path, example: str, reason: str) -> None:
    text = GRAMMAR.replace("example say -l 3", f"example {example}")
    (tmp_path / "say.grammar").write_text(text)
    faults = [str(fault) for fault in check_grammars(["say"], directory=tmp_path)]
    assert any(reason in fault for fault in faults), faults
